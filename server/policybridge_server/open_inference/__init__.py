"""The Open Inference Protocol, version 2: every policy is a model, and a sequence is a session."""
