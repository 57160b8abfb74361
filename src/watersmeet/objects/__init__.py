"""State that any machine reaches, in object stores or tables of PostgreSQL, and a cache of what is read."""
