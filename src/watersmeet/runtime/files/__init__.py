"""Files in local folders that both engines read: which there are, and how their columns are named."""
