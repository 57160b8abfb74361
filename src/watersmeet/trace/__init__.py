"""What a step of a replayed case did, and why: recorded from the in-process engine, told as text."""
