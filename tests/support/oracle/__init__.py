"""A plain nested-loop interpreter of semantics.md: a second opinion that shares no code with the engine."""
