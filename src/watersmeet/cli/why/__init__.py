"""The command ``why``."""
