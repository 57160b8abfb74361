"""Rules about conditions: what each conjunct is good for, as a key, a band, a bound, or a rest to check."""
