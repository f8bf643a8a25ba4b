"""Tasks: optimisation problems that can be trained; users write their own."""
