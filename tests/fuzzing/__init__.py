"""Fuzzers: each takes any bytes, and raises where a decoder or a state machine breaks its promise."""
