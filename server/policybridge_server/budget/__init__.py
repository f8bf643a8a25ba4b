"""The budgets of clients: bytes, time and work of each peer, which every door draws on."""

from policybridge_server.budget.memory import FREE, Budget, Memory, PeerMemory
from policybridge_server.budget.peers import PEER, PeerBudget, Peers
from policybridge_server.budget.returning import return_memory

__all__ = ["FREE", "PEER", "Budget", "Memory", "PeerBudget", "PeerMemory", "Peers", "return_memory"]
