"""The driver's half of a tick: watermarks, limits, commits, restore."""
