"""Policies as files of their own: C99, a class for LLVM, a plugin for a stock LLVM."""
