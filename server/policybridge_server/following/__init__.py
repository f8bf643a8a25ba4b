"""Policies from other places: a leader, or an address of fsspec; and the replicas of a leader."""

from policybridge_server.following.start import Following

__all__ = ["Following"]
