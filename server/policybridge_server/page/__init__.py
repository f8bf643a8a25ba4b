"""The web page of the server: policies, clients, decisions, and the state of roll-outs."""
