"""A leader with its replicas under load: how far they are behind, and what holds when they are killed."""
