"""What tasks do by kind of node: joins of all kinds, look-ups, windows."""
