"""Commands that start GCC with the plugin: their records, and trials of the compiler, of which no line is told."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from tests.native.conftest import GCC
from tests.native.gcc.compiling import LOOPS, Gcc, write_loops
from tests.native.llvm.plugins import need

pytestmark = pytest.mark.usefixtures("own_memory")


@dataclass(frozen=True)
class Command:
    """One command of GCC's with the plugin.

    Attributes:
        sessions: its sessions' source files and decisions.
        stats: the names of the statistics files.

    """

    sessions: list[tuple[str, float]]
    stats: list[str]

    @classmethod
    def of(cls, gcc: Gcc, folder: Path, ledger: Path, words: str) -> "Command":
        """Run the command in a folder, which must succeed and say nothing."""
        before = {session.id for session in sessions_of(ledger)}
        environment = gcc.environment("echo", stats=f"{folder}/stats/%m %p", fallback="error")
        command = [need(f"gcc-{GCC}"), f"-fplugin={gcc.path}", "-O2", "-funroll-loops", *words.split()]
        done = subprocess.run(
            command, cwd=folder, env=environment, input=LOOPS.encode(), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        made = [session for session in sessions_of(ledger) if session.id not in before]
        told = [(each.labels["source"], each.outcome.values["asked"]) for each in made if each.outcome]
        return cls(told, sorted(path.name.split()[0] for path in (folder / "stats").iterdir()))


def sessions_of(ledger: Path) -> list[SessionRecord]:
    with LedgerReader(ledger) as reader:
        return list(reader.sessions(Query(policy="echo")))


@pytest.mark.parametrize("words", ["-E", "-M", "-E -o made.i", "-fsyntax-only", "-fsyntax-only -o made.o"])
def test_where_gcc_compiles_nothing_nothing_is_recorded(gcc: Gcc, source: Path, ledger: Path, words: str) -> None:
    (source.parent / "stats").mkdir()
    assert Command.of(gcc, source.parent, ledger, f"{words} {source.name}") == Command([], [])


@pytest.mark.parametrize(
    ("words", "sources"),
    [
        ("-c loops.c -o /dev/null", ["loops.c"]),
        ("-S loops.c", ["loops.c"]),
        ("-pipe -c loops.c", ["loops.c"]),
        ("-save-temps -c loops.c", ["loops.c"]),
        ("-c loops.c again.c", ["loops.c", "again.c"]),
        ("-shared -fPIC loops.c again.c", ["loops.c", "again.c"]),
    ],
)
def test_each_source_of_a_command_has_one_session_and_one_statistics_file_by_its_name(
    gcc: Gcc, source: Path, ledger: Path, words: str, sources: list[str]
) -> None:
    names = "".join(f"#define {name} other_{name}\n" for name in ("dot", "hash", "last", "table", "fill", "matrix"))
    write_loops(source.parent, "again.c", names + LOOPS)
    (source.parent / "stats").mkdir()
    made = Command.of(gcc, source.parent, ledger, words)
    assert made == Command([(each, 5.0) for each in sources], sorted(sources))


def test_at_link_time_the_modules_are_recorded_whose_code_is_generated(gcc: Gcc, source: Path, ledger: Path) -> None:
    (source.parent / "stats").mkdir()
    made = Command.of(gcc, source.parent, ledger, "-flto -shared -fPIC loops.c")
    assert [decisions for _, decisions in made.sessions] == [5.0]
    assert [name for name in made.stats if "ltrans" not in name] == ["loops.c"]


TRIALS = (
    "-c conftest.c",
    "-c loops.c -o /dev/null",
    "-pipe -c loops.c -o /dev/null",
    "-S loops.c -o /dev/null",
    "-x c - -o /dev/null -shared -fPIC",
    "-x c -c - -o conftest.o",
    "-shared -fPIC -o conftest loops.c",
    "-c loops.c -o cmTC_1a2b3.dir",
)


@pytest.mark.parametrize("trial", TRIALS)
def test_no_line_is_told_of_what_tries_the_compiler(gcc: Gcc, source: Path, tmp_path: Path, trial: str) -> None:
    write_loops(tmp_path, "conftest.c")
    environment = gcc.environment("echo", server=f"socket:{tmp_path}/nobody")

    def said(*words: str) -> tuple[int, str]:
        command = [need(f"gcc-{GCC}"), f"-fplugin={gcc.path}", "-O2", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, input=LOOPS, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    assert said(*trial.split()) == (0, "")
    assert "all decisions are the compiler's own" in said("-c", source.name)[1]
