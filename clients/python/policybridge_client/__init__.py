"""Clients of the policy server: model runners, and the host of an unmodified LLVM."""
