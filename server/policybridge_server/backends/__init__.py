"""What loads a version's artifact and evaluates it; one file per framework."""
