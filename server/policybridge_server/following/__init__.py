"""Policies that come from elsewhere: from a leader, or from an address of fsspec; and the replicas of a leader."""

from policybridge_server.following.start import Following

__all__ = ["Following"]
