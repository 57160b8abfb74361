"""The command line: text or JSON, exit statuses, nothing that another part could need."""
