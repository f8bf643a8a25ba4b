"""Modules to compile again and again: bitcode before optimisation, the flags, and what is linked from it."""
