"""The ledger: the durable record of sessions, their decisions and their outcomes.

The record of a decision is the observation's bytes as they came, the advice, its log-probability where the session
explores, and the nanoseconds that it took. Decisions are collected per session on the loop thread, which costs less
than a microsecond each. The writer's own thread writes them, many in one transaction.

**What was acknowledged survives kill −9.** An outcome is acknowledged by its answer (``OutcomeRecorded``,
``ReportOutcomeResponse``, the socket's frame), the end of a gRPC session by the OK of its call. Either acknowledges all
earlier decisions of that session too. Everything else is on disk within about a second. This holds when the process is
killed; after a loss of power the file is whole, but the last transactions may be missing (SQLite's
``synchronous=NORMAL``).

A ledger that is slow or cannot be written never delays a decision. Decisions that find no room in memory are dropped
and counted as the session's ``lost`` decisions; then its outcome is not acknowledged.
"""
