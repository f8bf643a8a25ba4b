"""How many compiles one process hands out to a Ray cluster and takes in, by the number of compilers at a time."""
