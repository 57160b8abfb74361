"""The text itself: dialect, tokens, places, precedence of operators."""
