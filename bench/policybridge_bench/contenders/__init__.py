"""Contenders: PolicyBridge; floors, which do less; peers, which are other servers with the same model."""
