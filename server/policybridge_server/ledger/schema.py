"""The tables of the SQLite ledger."""

from typing import Final

APPLICATION: Final = 0x50424C47
"""The ``application_id`` in the file's header, "PBLG": it identifies a ledger without a query."""

FORMAT: Final = 1
"""Number of this form of the tables; a ledger of another form is refused."""

CREATE: Final = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};

-- `number` grows with time: the oldest session has the lowest, however the clock is set. Times are seconds since 1970.
CREATE TABLE IF NOT EXISTS sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  policy TEXT NOT NULL,
  version INTEGER NOT NULL,
  digest TEXT NOT NULL,
  labels TEXT NOT NULL,               -- a JSON object of strings
  options TEXT NOT NULL,              -- likewise
  exploration TEXT,                   -- a JSON object; NULL: the session did not explore
  opened REAL NOT NULL,
  closed REAL,                        -- NULL: it is still open
  interrupted INTEGER NOT NULL DEFAULT 0,  -- 1: its server was killed before it ended
  decisions INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0,    -- decisions that were dropped, and are in no segment
  status TEXT NOT NULL DEFAULT '',    -- of the outcome
  reported REAL                       -- when the last outcome came; NULL: none did
);

CREATE INDEX IF NOT EXISTS sessions_by_policy ON sessions (policy, version);
CREATE INDEX IF NOT EXISTS sessions_open ON sessions (number) WHERE closed IS NULL;

-- LLVM's JSON line of features and advice; each signature stands here once.
CREATE TABLE IF NOT EXISTS signatures (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);

-- Decisions `first` to `first + count - 1` of a session, its columns as in packing.py.
CREATE TABLE IF NOT EXISTS segments (
  session INTEGER NOT NULL,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL,
  signature INTEGER NOT NULL,
  context TEXT NOT NULL,
  observations BLOB NOT NULL,
  advices BLOB NOT NULL,
  chances BLOB,                       -- log-probabilities, float64; NULL: the session did not explore
  latencies BLOB NOT NULL             -- nanoseconds, int64
);

CREATE UNIQUE INDEX IF NOT EXISTS segments_by_session ON segments (session, first);

CREATE TABLE IF NOT EXISTS outcomes (
  session INTEGER NOT NULL,
  name TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (session, name)
) WITHOUT ROWID;

-- Numbers by context: of each report that had any, as in packing.py. A later report adds to the earlier ones.
CREATE TABLE IF NOT EXISTS context_outcomes (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  outcomes BLOB NOT NULL
);

CREATE INDEX IF NOT EXISTS context_outcomes_by_session ON context_outcomes (session, number);

-- One row: for how many seconds the ledger has lived, at the moment that `wall`, `boot` and `uptime` tell.
CREATE TABLE IF NOT EXISTS lifetime (lived REAL NOT NULL, wall REAL NOT NULL, boot TEXT NOT NULL, uptime REAL NOT NULL);

-- For how many seconds the ledger had lived when a session began. It never falls as the numbers grow.
CREATE TABLE IF NOT EXISTS births (session INTEGER PRIMARY KEY, lived REAL NOT NULL);

-- What a session compiles: its label `file`, or else the context that it began with. Nothing stands here where it had
-- neither.
CREATE TABLE IF NOT EXISTS files (session INTEGER PRIMARY KEY, name TEXT NOT NULL);

-- Sessions whose version the server chose: the alias that they asked for, a line for each reporter whose word they are
-- (see SessionView), and their evaluations that failed.
CREATE TABLE IF NOT EXISTS chosen (
  session INTEGER PRIMARY KEY,
  alias TEXT NOT NULL,
  reporters TEXT NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0
);

-- The client that opened a session, if the operator does not trust it; see SessionView.
CREATE TABLE IF NOT EXISTS openers (session INTEGER PRIMARY KEY, reporter TEXT NOT NULL);

-- What happened to roll-outs, in order: see RolloutStep. `at` is seconds since 1970.
CREATE TABLE IF NOT EXISTS rollout_steps (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  policy TEXT NOT NULL,
  what TEXT NOT NULL,
  rollout TEXT NOT NULL,              -- a JSON object, as in rollout.json
  at REAL NOT NULL
);

-- Numbers of sessions that are gone, and whose segments are still to be removed.
CREATE TABLE IF NOT EXISTS dropped (session INTEGER PRIMARY KEY);
"""

TABLES: Final = {
    "sessions": "number id policy version digest labels options exploration opened closed interrupted decisions",
    "signatures": "number text",
    "segments": "session first count signature context observations advices chances latencies",
    "outcomes": "session name value",
}
"""Columns that identify a ledger from before the ``application_id``."""
