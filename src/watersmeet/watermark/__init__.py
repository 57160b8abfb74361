"""Watermarks: from source partitions to inputs to outputs. Pure; time enters as an argument."""
