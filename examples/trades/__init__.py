"""Trades and quotes: the quote that was valid, and quotes at about the price."""
