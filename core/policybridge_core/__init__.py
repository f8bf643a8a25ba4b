"""Code that all packages share: errors, the values that describe a session, digests, tables of parts."""
