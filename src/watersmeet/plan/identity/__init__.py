"""Rules that tell whether a query fits its state: digests of what rows and state depend on."""
