"""What the tasks of all operators share."""
