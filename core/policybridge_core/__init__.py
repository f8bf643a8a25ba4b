"""Shared by all sides of PolicyBridge: errors, the values that describe a session, digests, tables of parts."""
