"""Arrays in, arrays out: slots, probes, pairs, equality, residual conditions. No I/O, no plan, no state."""
