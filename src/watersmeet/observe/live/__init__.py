"""A run as a terminal shows it: drawn in place, or a line per tick where it is no terminal."""
