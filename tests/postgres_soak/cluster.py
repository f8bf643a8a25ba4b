"""A PostgreSQL of one's own: in a folder of its own, as a user that is not root, ended by its process id."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg

from policybridge_bench.processes import free_port
from policybridge_core.errors import PreconditionError, UnavailableError

PASSWORD: Final = "s3cret/with:odd@signs"
_INSTALLED: Final = Path("/usr/lib/postgresql")
_SECONDS: Final = 60.0


def programs() -> Path:
    """Give the folder of PostgreSQL's programs.

    Raises:
        PreconditionError: it is not installed.

    """
    found = sorted(_INSTALLED.glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise PreconditionError("PostgreSQL is not installed (Debian: postgresql)")
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


def user() -> dict[str, Any]:
    """Give the arguments of `subprocess` that run a program as another user than root.

    Raises:
        PreconditionError: this is root, and there is nobody else.

    """
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise PreconditionError("PostgreSQL does not run as root, and there is no user postgres or nobody")


@dataclass
class Postgres:
    """A cluster; see `running_postgres`."""

    folder: Path
    bin: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            UnavailableError: it does not start.

        """
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder}
        options |= {"fsync": "off", "max_connections": 50, "shared_buffers": "16MB", "log_min_messages": "warning"}
        settings = [f"--{name}={value}" for name, value in options.items()]
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            with (self.folder / "log").open("ab") as log:
                words = [str(self.bin / "postgres"), "-D", str(self.folder / "data"), *settings]
                self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder, **user())
            if self._serves():
                return
            # The processes of one that was killed may still be there.
        raise UnavailableError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _serves(self) -> bool:
        while self.process is not None and self.process.poll() is None:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres")).close()
                return True
            time.sleep(0.02)
        return False

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: by SIGINT in an orderly way that waits for nobody, by SIGKILL as a crash would."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def url(self, database: str) -> str:
        """Give a URL over the Unix socket, without a password."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def tcp_url(self, database: str, password: str = "") -> str:
        """Give a URL over TCP, where a password is asked for."""
        return f"postgresql://postgres{password and ':'}{password}@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Make a database, and give its URL."""
        name = f"ledger{next(self._numbers)}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and give its rows."""
        url = database if "://" in database else self.url(database)
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Make a cluster, and run it.

    Raises:
        PreconditionError: PostgreSQL is not installed.

    """
    where = programs()
    with TemporaryDirectory(prefix="pb-pg-") as name:
        folder = Path(name)
        if not os.geteuid():
            os.chown(folder, user()["user"], user()["group"])
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        words = [
            str(where / "initdb"),
            "-D",
            str(folder / "data"),
            "--username=postgres",
            "--no-sync",
            "--encoding=UTF8",
        ]
        words += ["--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        subprocess.run(words, check=True, capture_output=True, cwd=folder, **user())
        postgres = Postgres(folder, where, free_port())
        try:
            postgres.start()
            yield postgres
        finally:
            # Nobody reads it again.
            postgres.stop(signal.SIGQUIT)
