"""Inputs whose rows are taken back: what they held after each tick, and the fates of their records."""
