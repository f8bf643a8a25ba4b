"""Search for the decisions that make a program smaller, by the credit that each has in the functions it touches."""
