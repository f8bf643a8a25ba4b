"""Trajectories: compiles of cases by a policy, with their decisions from the ledger."""
