"""Sources: from declarations to frames, and what can be asked of them beside reading."""
