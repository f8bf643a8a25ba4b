"""A corpus from Debian's source packages."""
