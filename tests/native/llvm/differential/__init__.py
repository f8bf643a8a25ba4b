"""Random programs, compiled with random choices of passes: each has to print what it prints without optimisation."""
