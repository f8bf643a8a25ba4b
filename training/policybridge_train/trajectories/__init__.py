"""Trajectories: cases compiled by a policy, and their decisions as the ledger has them."""
