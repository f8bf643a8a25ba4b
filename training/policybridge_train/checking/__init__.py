"""A project's programs with a policy and without: none may be larger."""
