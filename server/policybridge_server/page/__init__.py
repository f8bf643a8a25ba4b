"""The web page of the server: what it serves, who asks, what was decided, and how roll-outs stand."""
