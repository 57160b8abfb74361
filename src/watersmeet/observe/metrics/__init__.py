"""A run's figures for Prometheus: kept per run, shown at an address over HTTP."""
