"""What compilers made: the sections of object files and the sizes of their functions."""
