"""A user's function as a sink: `sink` decides what goes out, `call` calls it, `loading` finds it."""
