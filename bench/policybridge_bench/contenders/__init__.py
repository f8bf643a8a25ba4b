"""Contenders: PolicyBridge, floors, which do less than it, and peers, which are other servers with the same model."""
