"""`--workers N`: several processes that serve behind the same addresses, and the parent that starts them."""
