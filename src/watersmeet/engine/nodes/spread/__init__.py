"""Work of a join that tasks share otherwise than by hashes alone."""
