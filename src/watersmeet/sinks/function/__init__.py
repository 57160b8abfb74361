"""A user's function as a sink: `recorded` decides what goes out; `sink` and `call` call it in tasks, and
`batches` in the job's process; `loading` finds it."""
