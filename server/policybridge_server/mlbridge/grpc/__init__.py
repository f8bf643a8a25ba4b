"""ML-Compiler-Bridge's gRPC clients: a user's own services, answered by policies; see docs/ml-compiler-bridge.md."""
