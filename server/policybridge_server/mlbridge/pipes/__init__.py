"""ML-Compiler-Bridge's pipes: its compilers ask through a pair of FIFOs; see docs/ml-compiler-bridge.md."""
