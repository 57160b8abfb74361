"""Records that have a schema beside them: what it says, and how it becomes the declared columns."""
