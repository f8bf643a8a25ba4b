"""Stock GCC asks for the unroll factor of loops: a compilation succeeds, whatever happens to the server."""

import json
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.client.hostile_first_server import acting, check_is_one_short_line, loud
from tests.conftest import ServerFactory
from tests.native.conftest import BUILD, GCC, Target, build_grpc
from tests.native.gcc.compiling import LOOPS, MAIN, REAL, Gcc, write_loops
from tests.native.llvm.plugins import made_at_a_silent_server, need

UNROLLING = ("-O2", "-funroll-loops")
SAYING = "-fopt-info-loop-optimized"


pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.mark.parametrize("fallback", ["default", "error"])
def test_a_servers_message_is_one_short_line(gcc: Gcc, source: Path, fallback: str) -> None:
    with acting(loud) as server:
        made = gcc.compile(source, "echo", *UNROLLING, server=server, fallback=fallback)
    # Before an error GCC names the function in a line of its own.
    *before, line = made.said.splitlines()
    assert len(before) <= (fallback == "error")
    check_is_one_short_line(line)


EVERY_TRANSPORT = pytest.mark.parametrize("gcc", ["socket", "grpc"], indirect=True)


def last_session(ledger: Path, policy: str) -> tuple[SessionRecord, DecisionBatch]:
    with LedgerReader(ledger) as reader:
        session = list(reader.sessions(Query(policy=policy)))[-1]
        (batch,) = reader.trajectory(session).batches
        return session, batch


def column(batch: DecisionBatch, feature: str) -> list[int]:
    return [int(value) for value in batch.observations[feature].reshape(-1)]


@EVERY_TRANSPORT
def test_an_echo_gives_the_object_of_a_plain_build_over_every_transport(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    made = gcc.compile(source, "echo", *UNROLLING, stats=str(stats), fallback="error")
    assert (made.status, made.said, made.made) == (0, "", gcc.plain(source, *UNROLLING))
    assert json.loads(stats.read_text())["decisions"] == 5


@EVERY_TRANSPORT
def test_by_default_gcc_decides_where_the_policy_has_a_form_and_the_server_where_it_has_none(
    gcc: Gcc, source: Path, ledger: Path
) -> None:
    for policy, expected in (("given", "client"), ("echo", None)):
        made = gcc.compile(source, policy, *UNROLLING, fallback="error")
        assert (made.status, made.said, made.made) == (0, "", gcc.plain(source, *UNROLLING))
        session, batch = last_session(ledger, policy)
        assert session.labels.get("evaluated") == expected
        assert column(batch, "unrolling_default") == [int(each) for each in batch.advices["unrolling"].reshape(-1)]


@pytest.mark.parametrize(
    "flags",
    ["-O3 -g -gno-record-gcc-switches", "-O2 -funroll-all-loops"],
)
def test_an_echo_of_gccs_own_decision_gives_the_objects_of_a_plain_build(gcc: Gcc, tmp_path: Path, flags: str) -> None:
    asked = 0
    for source in REAL:
        stats = tmp_path / "stats.json"
        made = gcc.compile(source, "echo", *flags.split(), stats=str(stats))
        assert (made.status, made.said) == (0, "")
        assert made.made == gcc.plain(source, *flags.split())
        asked += json.loads(stats.read_text())["decisions"]
    assert asked > 80


def test_a_policy_that_leaves_all_to_gcc_gives_the_plain_object(gcc: Gcc, source: Path) -> None:
    assert gcc.compile(source, "own", *UNROLLING).made == gcc.plain(source, *UNROLLING)


@pytest.mark.parametrize(
    ("policy", "flags"), [("echo", "-O2 -funroll-loops"), ("echo", "-O1 -funroll-all-loops"), ("largest", "-O2")]
)
def test_the_default_that_is_sent_and_the_advice_are_what_gcc_then_does(
    gcc: Gcc, source: Path, ledger: Path, policy: str, flags: str
) -> None:
    for path in (source, "libc/musl/src/regex/regcomp.c", "libc/musl/src/math/__rem_pio2_large.c"):
        made = gcc.compile(path, policy, *flags.split(), SAYING, growth_limit="inf")
        assert made.status == 0
        _, batch = last_session(ledger, policy)
        told = Counter(zip(column(batch, "line"), map(int, batch.advices["unrolling"].reshape(-1)), strict=True))
        assert made.unrolled() == Counter({one: count for one, count in told.items() if one[1] > 1})


def test_a_factor_of_four_for_one_loop_is_seen_in_the_code_of_that_loop_alone(gcc: Gcc, source: Path) -> None:
    def functions(assembly: bytes) -> dict[str, str]:
        parts = assembly.decode().split("\t.globl\t")
        # Numbers of labels go through the whole file.
        lines = [[line for line in part.splitlines() if not line.startswith(".L")] for part in parts]
        return {part[0]: "\n".join(line.partition(".L")[0] for line in part) for part in lines}

    plain, made = functions(gcc.plain(source, "-S")), functions(gcc.compile(source, "four", "-S").made)
    # Four in the loop, and up to three before it.
    assert (plain["dot"].count("mulsd"), made["dot"].count("mulsd")) == (1, 7)
    assert [name for name in plain if plain[name] != made[name]] == ["dot"]


def test_advice_not_to_unroll_holds_back_what_the_command_line_asks_for(gcc: Gcc, source: Path) -> None:
    assert sum(gcc.compile(source, "own", *UNROLLING, SAYING).unrolled().values()) == 4
    assert not gcc.compile(source, "never", *UNROLLING, SAYING).unrolled()


@pytest.mark.parametrize("flags", ["-O3 -march=x86-64-v3 -g", "-O2 -fPIC -fsanitize=undefined", "-O2 -flto"])
def test_a_program_whose_loops_are_unrolled_as_far_as_possible_computes_the_same(
    gcc: Gcc, tmp_path: Path, flags: str
) -> None:
    source = write_loops(tmp_path, "program.c", LOOPS + MAIN)
    said = []
    for name, loading in (("plain", []), ("unrolled", [f"-fplugin={gcc.path}"])):
        words = [need(f"gcc-{GCC}"), *flags.split(), *loading, str(source), "-o", str(tmp_path / name)]
        subprocess.run(words, env=gcc.environment("largest", growth_limit="inf"), check=True)
        said.append(subprocess.run([tmp_path / name], check=True, capture_output=True).stdout)
    assert said[0] == said[1]
    assert (tmp_path / "plain").read_bytes() != (tmp_path / "unrolled").read_bytes()


def test_a_source_that_says_how_often_its_loop_is_unrolled_is_not_asked_about(gcc: Gcc, tmp_path: Path) -> None:
    source = write_loops(tmp_path, "pragma.c", LOOPS.replace("  for (long i", "#pragma GCC unroll 8\n  for (long i", 1))
    made = gcc.compile(source, "never", SAYING, stats=str(tmp_path / "stats.json"))
    assert made.unrolled() == {(5, 8): 1}
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] == 4


def test_one_compilation_is_one_session_whose_decisions_tell_their_loop(
    gcc: Gcc, source: Path, tmp_path: Path, ledger: Path
) -> None:
    before = gcc.compile(source, "echo", labels="project=x", options="a=b")
    session, batch = last_session(ledger, "echo")
    assert (before.status, session.labels["source"], session.decisions) == (0, str(source), 5)
    assert (session.labels["project"], session.options) == ("x", {"a": "b"})
    assert session.labels["client"].startswith(f"policybridge-unroll-gcc-{GCC}.")
    functions = ["dot", "hash", "last", "fill", "matrix"]
    assert list(batch.contexts) == functions
    assert column(batch, "line") == [4, 10, 16, 22, 27]
    assert column(batch, "counted") == [1, 1, 0, 1, 1]
    assert column(batch, "constant_iterations") == [-1, -1, -1, 99, -1]
    assert column(batch, "depth") == [1, 1, 1, 1, 2]
    assert [value % 2**64 for value in column(batch, "site")] == [
        int(sha256(f"{name}\n0".encode()).hexdigest()[:16], 16) for name in functions
    ]
    assert session.outcome is not None
    assert (session.outcome.status, session.outcome.values["asked"], session.outcome.values["departures"]) == (
        "ok",
        5,
        0,
    )
    with LedgerReader(ledger) as reader:
        parts = reader.context_outcomes(session)
    assert set(parts) == {*functions}
    assert all(part["instructions"] > 5 for part in parts.values())
    # An edit elsewhere moves the lines and leaves the sites.
    edited = write_loops(tmp_path, "edited.c", "int other(int x) { return x; }\n" + LOOPS)
    assert gcc.compile(edited, "echo").status == 0
    _, after = last_session(ledger, "echo")
    assert column(after, "site") == column(batch, "site")
    assert column(after, "line") != column(batch, "line")


def test_a_session_explores_among_the_advice_that_gcc_follows(gcc: Gcc, source: Path, ledger: Path) -> None:
    made = [gcc.compile(source, "scores", SAYING, explore="epsilon=1,seed=3") for _ in range(2)]
    session, batch = last_session(ledger, "scores")
    drawn = [int(advice) for advice in batch.advices["unrolling"].reshape(-1)]
    assert (made[0].status, made[0].made, session.exploration is not None) == (0, made[1].made, True)
    assert all(mask.reshape(-1)[one] for mask, one in zip(batch.observations["mask"], drawn, strict=True))
    assert sum(made[0].unrolled().values()) == sum(one > 1 for one in drawn) > 0


@contextmanager
def answering_with(path: Path, answer: bytes) -> Iterator[str]:
    """Listen, and answer whatever comes by these bytes; by nothing where there are none."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while connection.recv(1 << 16) and answer:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"socket:{path}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": "socket:/nowhere"}, "all decisions are the compiler's own: could not reach the server"),
        ({"server": "grpc:127.0.0.1:1"}, "all decisions are the compiler's own: could not reach the server"),
        ({"server": ""}, "-server or POLICYBRIDGE_SERVER is not set"),
        ({"server": "pigeon:x"}, "pigeon"),
        ({"policy": "nobody"}, "no policy 'nobody'; there are "),
        ({"policy": "failing"}, "no such feature"),
        (
            {"policy": "masked"},
            "own: the policy advises 3 copies of a loop, which its mask does not allow",
        ),
        ({"policy": "huge"}, "the policy advises 1099511627776 copies"),
        ({"policy": "negative"}, "the policy advises -1 copies"),
        ({"timeout": "soon"}, "POLICYBRIDGE_TIMEOUT is a number of seconds from 0.001 to 86400, not 'soon'"),
        ({"labels": "x"}, "POLICYBRIDGE_LABELS is NAME=VALUE, not 'x'"),
        ({"explore": "x"}, "POLICYBRIDGE_EXPLORE is wrong: "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_without_advice_the_object_is_the_plain_one_and_one_line_says_so(
    native: Target, gcc: Gcc, source: Path, settings: dict[str, str], message: str
) -> None:
    build_grpc(native)
    made = gcc.compile(source, **{"policy": "echo", **settings})
    assert (made.status, made.made) == (0, gcc.plain(source))
    assert made.said.count("\n") == 1
    assert message in made.said
    failed = gcc.compile(source, **{"policy": "echo", **settings, "fallback": "error"})
    assert (failed.status, failed.made) == (1, b"")
    assert "error: policybridge: no advice: " in failed.said


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0" * 64, b"\xff" * 65536, b'{"accepted": true}\n'],
    ids=["silence", "zeros", "ones", "json"],
)
def test_a_server_that_hangs_or_answers_nonsense_leaves_the_plain_object(gcc: Gcc, source: Path, answer: bytes) -> None:
    with TemporaryDirectory(prefix="pb-") as folder, answering_with(Path(folder) / "s", answer) as server:
        made = gcc.compile(source, "echo", "-Werror", server=server, timeout="0.5")
    assert (made.status, made.made) == (0, gcc.plain(source))
    assert made.said.count("policybridge: all decisions are the compiler's own: ") == 1


def test_a_server_that_hangs_is_waited_for_once_a_minute_or_always(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    def compiled(**settings: str) -> tuple[bytes, str]:
        made = gcc.compile(source, "echo", **settings)
        return made.made, made.said

    assert made_at_a_silent_server(tmp_path, compiled) == {gcc.plain(source)}


@EVERY_TRANSPORT
def test_a_server_that_dies_or_is_slow_in_the_middle_leaves_gccs_own_decisions(
    gcc: Gcc, source: Path, tmp_path: Path, repository: Path, server_factory: ServerFactory
) -> None:
    stats, dying = tmp_path / "stats.json", server_factory(repository)
    for policy, status, server, timeout in (
        ("sleeping", 4, gcc.server, "0.2"),
        ("dying", 14, dying.grpc if gcc.server.startswith("grpc:") else dying.socket, "10"),
    ):
        made = gcc.compile(source, policy, *UNROLLING, server=server, timeout=timeout, stats=str(stats))
        assert (made.status, made.made) == (0, gcc.plain(source, *UNROLLING))
        written = json.loads(stats.read_text())
        assert (written["task"], written["fallback"]["status"], made.said.count("\n")) == ("unroll", status, 1)
        assert written["decisions"] + written["fallback"]["decisions"] == 5


def test_beyond_the_growth_limit_gcc_decides_and_it_is_counted_and_told(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    made = gcc.compile(source, "largest", growth_limit="0.1", stats=str(stats))
    counted = json.loads(stats.read_text())
    limited = counted["limited"]
    assert (limited > 0, limited + counted["decisions"]) == (True, 5)
    assert made.said.startswith(f"policybridge: {limited} decisions are the compiler's own: the policy has added 0.1 ")
    assert gcc.compile(source, "largest").made != made.made
    echo = gcc.compile(source, "echo", *UNROLLING, growth_limit="0")
    assert (echo.said, echo.made) == ("", gcc.plain(source, *UNROLLING))


def test_the_command_line_wins_over_the_environment(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    flags = [gcc.argument("policy", "four@1"), gcc.argument("stats", f"{tmp_path}/%m.%p.json")]
    assert gcc.compile(source, "never", *flags).made == gcc.compile(source, "four").made
    (stats,) = tmp_path.glob("*.json")
    assert json.loads(stats.read_text())["policy"]["name"] == "four"


def test_an_argument_that_the_plugin_does_not_have_is_an_error_of_the_compiler(gcc: Gcc, source: Path) -> None:
    made = gcc.compile(source, "echo", gcc.argument("serve", "x"))
    assert made.status == 1
    assert f"error: policybridge: {gcc.path.stem} has no argument" in made.said


def test_a_gcc_of_another_version_says_so_and_refuses_the_plugin(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    version = subprocess.run([need(f"gcc-{GCC}"), "-dumpfullversion"], capture_output=True, check=True).stdout.strip()
    other = tmp_path / gcc.path.name
    other.write_bytes(gcc.path.read_bytes().replace(version + b"\0", b"11" + version[2:] + b"\0"))
    made = Gcc(other, gcc.server).compile(source, "echo")
    assert made.status == 1
    assert f"is a plugin for GCC 11{version[2:].decode()}, and this compiler is GCC {version.decode()}" in made.said


def test_names_of_any_bytes_are_compiled_and_recorded(gcc: Gcc, tmp_path: Path, ledger: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path / "a folder, ") + b"\xff\xc3"))
    folder.mkdir()
    declared = 'double dot(const double *, const double *, long) __asm__("d\\xfft %s");\n'
    source = write_loops(folder, "mödule's.c", declared + LOOPS)
    made = gcc.compile(source, "echo", "-S")
    assert (made.status, made.said, made.made) == (0, "", gcc.plain(source, "-S"))
    session, batch = last_session(ledger, "echo")
    assert session.labels["source"] == str(tmp_path / "a folder, \ufffd\ufffd" / "mödule's.c")
    assert batch.contexts[0] == "d\ufffdt %s"


def test_compilations_at_once_and_those_without_loops_do_not_disturb_each_other(
    gcc: Gcc, tmp_path: Path, source: Path
) -> None:
    lonely = write_loops(tmp_path, "lonely.c", "int lonely(int x) { return x; }\n")
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda path: gcc.compile(path, "echo", *UNROLLING), [source, lonely] * 3))
    assert [one.made for one in made] == [gcc.plain(path, *UNROLLING) for path in (source, lonely)] * 3
    # No session is opened where nothing is asked, and so nothing fails.
    stats = tmp_path / "stats.json"
    without = gcc.compile(lonely, "nobody", fallback="error", stats=str(stats))
    assert (without.status, without.said, json.loads(stats.read_text())["sessions"]) == (0, "", [])
    assert gcc.compile(source, "nobody", "-Os", fallback="error").status == 0


def test_under_ccache_what_its_key_does_not_hold_is_an_error(gcc: Gcc, source: Path, tmp_path: Path) -> None:
    def compiled(*settings: tuple[str, str], **variables: str) -> "subprocess.CompletedProcess[str]":
        words = [need("ccache"), f"gcc-{GCC}", "-O2", f"-fplugin={gcc.path}", "-c", str(source), "-o", "made.o"]
        words += [gcc.argument(*setting) for setting in settings]
        environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache"), **variables}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    server, strict = ("server", gcc.server), ("fallback", "error")
    for settings, variables, message in (
        ((server, ("policy", "four@1")), {}, "fallback=error"),
        ((server, ("policy", "four"), strict), {}, "name the version"),
        ((server, strict), {"POLICYBRIDGE_POLICY": "four@1"}, "not POLICYBRIDGE_POLICY"),
        ((server, ("policy", "four@1"), strict), {"POLICYBRIDGE_OPTIONS": "a=b"}, "not POLICYBRIDGE_OPTIONS"),
        ((server, ("policy", "four@1"), strict, ("explore", "epsilon=1")), {}, "nothing explores"),
    ):
        done = compiled(*settings, **variables)
        assert done.returncode == 1
        assert "under ccache" in done.stderr
        assert message in done.stderr
    made = {}
    for policy in ("four@1", "never@1", "four@1"):
        assert compiled(server, ("policy", policy), strict).returncode == 0
        made[policy] = (tmp_path / "made.o").read_bytes()
    assert made["four@1"] != made["never@1"]


def test_the_plugin_is_installed_where_those_for_llvm_are(gcc: Gcc, tmp_path: Path) -> None:
    install: list[str | Path] = [
        "cmake",
        f"-DCMAKE_INSTALL_PREFIX={tmp_path}",
        "-P",
        BUILD / "cpp" / "gcc" / "cmake_install.cmake",
    ]
    subprocess.run(install, check=True, capture_output=True)
    (installed,) = tmp_path.glob(f"lib*/policybridge/{gcc.path.name}")
    assert installed.stat().st_mode & 0o444 == 0o444
