"""The sessions of a web shop, and which of them bought something."""
