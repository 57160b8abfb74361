"""Files as sources: which there are, which were read, what columns they have."""
