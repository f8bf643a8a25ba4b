"""Measurements of policy servers: PolicyBridge, bare echoes and other servers in one interleaved run."""
