"""A tick as the driver sees it: what is decided between the tasks, and what is remembered."""
