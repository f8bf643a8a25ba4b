"""The demo: real C and C++ compiled by a real compiler, several at once, all asking one policy server."""
