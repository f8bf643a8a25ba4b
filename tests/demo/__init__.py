"""The demo and the bundled policies."""
