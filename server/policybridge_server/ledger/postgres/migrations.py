"""The tables of the ledger in PostgreSQL, and the migrations of earlier versions."""

from typing import Final

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.connection import SCHEMA, Connected, RefusedError, mapped, transaction

_LOCK: Final = 0x50424C47
"""Of the servers that want to change the tables, one does."""

_TABLES: Final = """
-- Sessions are numbered as they come here: `partition << 36 | n`. All tables of sessions have the same partitions,
-- which begin one after the other: retention drops the oldest. Times are seconds since 1970.
-- Text has no NUL: see text.py.
CREATE TABLE partitions (
  number integer PRIMARY KEY,
  born float8 NOT NULL                -- for how many seconds the ledger had lived when it began
);

-- One row: for how many seconds the ledger has lived, and the time of day at which that was counted.
CREATE TABLE lifetime (lived float8 NOT NULL, seen timestamptz NOT NULL);
INSERT INTO lifetime VALUES (0, clock_timestamp());

-- Up to which batch of its spool each server's records are here: a batch that comes again is left out.
CREATE TABLE writers (id text PRIMARY KEY, batch bigint NOT NULL, seen timestamptz NOT NULL);

CREATE SEQUENCE session_numbers;

CREATE TABLE sessions (
  number bigint PRIMARY KEY,
  id text COLLATE "C" NOT NULL,
  writer text NOT NULL,
  policy text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  digest text NOT NULL,
  labels text NOT NULL,               -- a JSON object of strings
  options text NOT NULL,              -- likewise
  exploration text,                   -- a JSON object; NULL: the session did not explore
  opened float8 NOT NULL,
  closed float8,                      -- NULL: it is still open
  interrupted smallint NOT NULL,      -- 1: its server was killed before it ended
  decisions bigint NOT NULL,
  lost bigint NOT NULL,               -- decisions that were dropped, and are in no segment
  status text NOT NULL,               -- of the outcome
  reported float8,                    -- when the last outcome came; NULL: none did
  file text NOT NULL                  -- what it compiles; empty: that is not known
) PARTITION BY RANGE (number);
CREATE INDEX sessions_by_id ON sessions (id);
CREATE INDEX sessions_by_policy ON sessions (policy, version);
CREATE INDEX sessions_open ON sessions (writer) WHERE closed IS NULL;

-- LLVM's JSON line of features and advice; each signature stands here once.
CREATE TABLE signatures (
  number integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  digest text NOT NULL UNIQUE,        -- SHA-256 of the text, which may be too long for an index
  text text NOT NULL
);

-- Decisions `first` to `first + count - 1` of a session, its columns as in packing.py.
CREATE TABLE segments (
  session bigint NOT NULL,
  first bigint NOT NULL,
  count integer NOT NULL,
  signature integer NOT NULL,
  context text NOT NULL,
  observations bytea NOT NULL,
  advices bytea NOT NULL,
  chances bytea,     -- log-probabilities, float64; NULL: the session did not explore
  latencies bytea NOT NULL,  -- nanoseconds, int64
  PRIMARY KEY (session, first)
) PARTITION BY RANGE (session);
-- They are compressed already.
ALTER TABLE segments ALTER observations SET STORAGE EXTERNAL, ALTER advices SET STORAGE EXTERNAL,
  ALTER chances SET STORAGE EXTERNAL, ALTER latencies SET STORAGE EXTERNAL;

-- A name stands here once for a session; no index says so, because names may be too long for one.
CREATE TABLE outcomes (
  session bigint NOT NULL, name text COLLATE "C" NOT NULL, value float8 NOT NULL
) PARTITION BY RANGE (session);
CREATE INDEX outcomes_by_session ON outcomes (session);

-- Numbers by context: of each report that had any, as in packing.py. A later report adds to the earlier ones.
CREATE SEQUENCE context_outcome_numbers;
CREATE TABLE context_outcomes (
  number bigint NOT NULL DEFAULT nextval('context_outcome_numbers'),
  session bigint NOT NULL,
  outcomes bytea NOT NULL
) PARTITION BY RANGE (session);
ALTER TABLE context_outcomes ALTER outcomes SET STORAGE EXTERNAL;
CREATE INDEX context_outcomes_by_session ON context_outcomes (session, number);

-- What happened to roll-outs, in order: see RolloutStep. `at` is seconds since 1970.
CREATE TABLE rollout_steps (
  number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  policy text NOT NULL,
  what text NOT NULL,
  rollout text NOT NULL,              -- a JSON object, as in rollout.json
  at float8 NOT NULL
);
"""

_CHOSEN: Final = """
-- See the table `chosen` of the SQLite ledger.
ALTER TABLE sessions ADD COLUMN alias text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN reporters text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN failures bigint NOT NULL DEFAULT 0;
"""

_OPENER: Final = """
-- See the table `openers` of the SQLite ledger.
ALTER TABLE sessions ADD COLUMN opener text COLLATE "C" NOT NULL DEFAULT '';
"""

MIGRATIONS: Final = (_TABLES, _CHOSEN, _OPENER)
"""The statements that migrate to format 1, 2, … from the format before. They are never changed."""


def migrate(connection: Connected, url: DatabaseUrl) -> None:
    """Bring the tables to the newest format; if there are none, make them.

    Raises:
        RefusedError: the tables are of a newer version, or this user may not make them.
        UnavailableError: the database is away.

    """
    with mapped(url):
        if _format(connection) != len(MIGRATIONS):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                _change(connection, url)


def _change(connection: Connected, url: DatabaseUrl) -> None:
    present = _format(connection)
    if present is None:
        if not _found(connection, "SELECT to_regnamespace(%s) IS NOT NULL AS found"):
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"CREATE TABLE {SCHEMA}.format (number integer NOT NULL)")
        connection.execute(f"INSERT INTO {SCHEMA}.format VALUES (0)")  # noqa: S608 - our own name
    if present is not None and present > len(MIGRATIONS):
        raise _newer(url, present)
    connection.execute(f"SET LOCAL search_path = {SCHEMA}")
    for statements in MIGRATIONS[present or 0 :]:
        connection.execute(statements)
    connection.execute("UPDATE format SET number = %s", (len(MIGRATIONS),))


def check_format(connection: Connected, url: DatabaseUrl) -> None:
    """Check that the tables can be read.

    Raises:
        RefusedError: they are those of a newer version.
        UnavailableError: there are no tables, or older ones, or the database is away.

    """
    with mapped(url):
        present = _format(connection)
    if present is None:
        raise UnavailableError(f"there is no ledger in {url}: no server has written one")
    if present > len(MIGRATIONS):
        raise _newer(url, present)
    if present < len(MIGRATIONS):
        raise UnavailableError(
            f"the ledger {url} is of format {present}, and this version of PolicyBridge reads {len(MIGRATIONS)}: a "
            "server of this version brings it there"
        )


def _newer(url: DatabaseUrl, present: int) -> RefusedError:
    return RefusedError(
        f"the ledger {url} is of format {present}; this version of PolicyBridge knows those up to {len(MIGRATIONS)}"
    )


def _format(connection: Connected) -> int | None:
    if not _found(connection, "SELECT to_regclass(%s || '.format') IS NOT NULL AS found"):
        return None
    with transaction(connection):
        row = connection.execute("SELECT number FROM format").fetchone()
    return None if row is None else int(row["number"])


def _found(connection: Connected, statement: str) -> bool:
    row = connection.execute(statement, (SCHEMA,)).fetchone()
    return bool(row and row["found"])
