"""The ledger: the durable record of sessions, their decisions and their outcomes.

The record of a decision is the observation's received bytes, the advice, its log-probability if the session
explores, and its nanoseconds. Decisions are collected per session on the loop thread, which costs less
than a microsecond each. The writer's own thread writes them, many in one transaction.

**Acknowledged records survive kill −9.** An outcome is acknowledged by its answer (``OutcomeRecorded``,
``ReportOutcomeResponse``, the socket's frame), the end of a gRPC session by the OK of its call, the end of a sequence
by the answer to its last request. Each acknowledges all earlier decisions of that session too. All other records are on
disk within about a second, whatever other clients report. This holds if the process is killed; after a loss of power
the file is intact, but the last transactions may be missing (SQLite's ``synchronous=NORMAL``).

A ledger that is slow or cannot be written never delays a decision. Waiting records take a bounded amount of memory;
they are written oldest first, in transactions that become smaller if the disk has little room. Decisions that find
no room in memory are dropped and counted as the session's ``lost`` decisions; then its outcome is not acknowledged.

Nothing depends on how the machine's clock is set: sessions are ordered by their numbers, and grow old by the seconds
that passed.
"""

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader

__all__ = ["LedgerReader", "Query"]
