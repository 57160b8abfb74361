"""Tables of PostgreSQL as sinks: `sink` is what the driver does, `part` what tasks do."""
