"""The policy server: repository, backends, engine and transports."""
