"""Backend `tensorflow`: SavedModels."""
