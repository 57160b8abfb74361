"""What the driver does by kind of node: a strategy each, and the one list of all kinds (`registry`)."""
