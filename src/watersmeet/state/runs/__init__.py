"""Runs: immutable sorted files of rows. What they hold, how they are written, how they are read."""
