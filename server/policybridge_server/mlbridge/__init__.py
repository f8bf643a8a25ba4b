"""ML-Compiler-Bridge: its clients ask over gRPC with services of their own, or through a pair of FIFOs."""
