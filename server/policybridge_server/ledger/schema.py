"""The tables of the SQLite ledger."""

from typing import Final

FORMAT: Final = 1
"""Number of this form of the tables; a ledger of another form is refused."""

CREATE: Final = f"""
PRAGMA user_version = {FORMAT};

-- `number` grows with time: the oldest session has the lowest. Times are seconds since 1970.
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
"""
