"""The rows of a tick: who reads them, and which are read again."""
