"""Judging roll-outs by the outcomes in the ledger."""
