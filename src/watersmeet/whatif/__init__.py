"""What would become of a sample of a job's rows under other lags, intervals and idle timeouts: late rows,
lost matches, and what would be retained. `tried` tells the whole of it."""
