"""Modules to compile again and again: bitcode before optimisation, its flags, and the programs linked from it."""
