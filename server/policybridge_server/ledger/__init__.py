"""The ledger: the durable record of sessions, their decisions and their outcomes.

A decision is kept as it was made: the observation's bytes as they came, the advice, its log-probability where the
session explores, and the nanoseconds that it took. Decisions are collected per session on the loop thread, which costs
each of them less than a microsecond, and written by a thread of its own, many in one transaction.

**What was acknowledged survives kill −9.** Acknowledged are an outcome, once it is answered (``OutcomeRecorded``,
``ReportOutcomeResponse``, the socket's frame), and the end of a gRPC session, once its call has ended with OK; and with
either of them every decision of that session that was answered before. All else is on disk within about a second.
That holds for the process; for a loss of power only as far as the operating system has written (SQLite's
``synchronous=NORMAL``: the file stays whole, the last transactions may be missing).

A ledger that cannot keep up or cannot be written never holds up a decision: what finds no room is counted as the
session's ``lost`` decisions, and its outcome is not acknowledged.
"""
