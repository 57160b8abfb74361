"""Failures of machines, and the readings of their sensors before."""
