"""What a node's tasks reported, put together: the state after a tick."""
