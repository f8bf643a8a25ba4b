"""Scripts that build real packages: Debian's sources with our policies and stores, and h2spec."""
