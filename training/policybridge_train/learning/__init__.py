"""Parts of the algorithms: the split of projects, models, publishing, the run's record."""
