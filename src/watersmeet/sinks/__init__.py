"""Where rows go, and what exactly-once means for each kind of sink."""
