"""Makes the pictures of docs/gallery.md from real runs: ``make gallery``."""
