"""The driver's half of each operator."""
