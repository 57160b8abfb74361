"""Delta joins: N inputs joined by inner joins alone, without intermediate results."""
