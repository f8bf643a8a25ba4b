"""How clients reach the engine; each knows frames and sessions, and nothing of models."""
