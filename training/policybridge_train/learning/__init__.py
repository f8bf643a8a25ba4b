"""What the algorithms are made of: the split of projects, a server, rollouts, models, publishing, the run's record."""
