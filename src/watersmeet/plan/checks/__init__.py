"""Rules that refuse: what no state could hold, and what sources and sinks do not allow."""
