"""Compiling a module of a corpus: any LLVM that is found, with limits of time and memory."""
