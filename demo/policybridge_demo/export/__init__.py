"""One small network as each framework stores it, and the policies that are made of it."""
