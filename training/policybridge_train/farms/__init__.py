"""Where compilers run: on this machine, or on those of a cluster."""
