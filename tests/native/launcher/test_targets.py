"""The launcher's sessions and those of ``policybridge run`` have the labels of the plugin's."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_server.ledger.reader import LedgerReader
from tests.client.compilers import write_source
from tests.client.policies import write_policies
from tests.conftest import RunningServer, running_server
from tests.native.conftest import Target
from tests.native.launcher.running import HOST, Ran, run
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.stores import Tuner

AARCH64 = "--target=aarch64-linux-gnu"


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """Serve the tests' policies with a ledger, and a cache of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_policies(tmp_path / "policies")
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(tmp_path / "policies", Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        yield running


@pytest.fixture
def plugin(native: Target) -> Path:
    return built_plugin(native, "inliner", "22")


def labels(server: RunningServer, session: str) -> dict[str, str]:
    with LedgerReader(Path(server.socket.removeprefix("socket:")).parent / "ledger.db") as reader:
        found = reader.session(session).labels
    return {name: value for name, value in found.items() if name in ("level", "phase", "target", "llvm", "language")}


def compiled(host: list[str], server: RunningServer, *words: str, label: str = "") -> Ran:
    more = ("--label", label) if label else ()
    options = ("--server", server.socket, "--policy", "never", "--fallback", "error", *more)
    return run(host, options, ("clang-22", "-Oz", "-c", "module.c", "-o", "made.o", *words))


@pytest.mark.parametrize("words", [(), ("-m32",), (AARCH64,)])
def test_all_hosts_give_the_labels_of_the_plugin(
    native: Target, launcher: str, recording: RunningServer, folder: Path, words: tuple[str, ...]
) -> None:
    source = write_source(folder)
    made = Tuner.of(native, "22", folder).compile(source, "-Oz", *words, server=recording.socket, policy="never")
    expected = labels(recording, json.loads((made.folder / "stats.json").read_text())["sessions"][0])
    assert set(expected) == {"level", "phase", "target", "llvm", "language"}
    # The second of a host reads the answer from the cache, and the launcher that of the host in Python.
    for host in (HOST, HOST, [launcher]):
        ran = compiled(list(host), recording, *words)
        assert labels(recording, ran.stats["sessions"][0]) == expected


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "language"),
    [
        ("clang-22 module.cc", "c++"),
        ("clang-22 module.CXX", "c++"),
        ("clang++-22 module.c", "c++"),
        ("clang-22 -x c++ module.c", "c++"),
        ("clang-22 -x c++ -x none module.c", "c"),
        ("clang++-22 -xc module.cc", "c"),
        ("clang-22 -x objective-c++ module.c", "objective-c++"),
        ("clang-22 -mllvm -x86-asm-syntax=intel module.m", "objective-c"),
        ("clang-22 -x c module", "c"),
        ("clang++-22 -xc module", "c"),
        ("clang-22 -I module -x c++ module", "c++"),
        ("clang-22 -x c++ module.c.in", "c++"),
        ("clang-22 -fno-integrated-cc1 -x c++ module.c", "c++"),
        ("clang-22 -x cpp-output module", "c"),
        ("clang-22 -x c -", "c"),
        ("clang-22 -xc++ -", "c++"),
    ],
)
def test_all_hosts_tell_the_language_of_a_source(
    plugin: Path, launcher: str, recording: RunningServer, command: str, language: str
) -> None:
    words = command.split()
    source = write_source(Path.cwd(), "given.c" if words[-1] == "-" else words[-1]).read_bytes()
    words += ["-Oz", "-w", "-c", "-o", "made.o"]
    options = ("--server", recording.socket, "--policy", "never", "--fallback", "error")
    sessions = [run(host, options, words, given=source).stats["sessions"][0] for host in (HOST, [launcher])]
    sessions += by_plugin(words, plugin, recording, source)
    assert [labels(recording, session).get("language") for session in sessions] == [language, language, language]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "language"),
    [
        ("clang-22 one.c two.i", "c"),
        ("clang-22 one.cc two.cpp", "c++"),
        ("clang-22 -x c++ one.c two.c", "c++"),
        ("clang++-22 one.c two.cc", "c++"),
        ("clang-22 -x c++ one.c -x none two.cc", "c++"),
    ],
)
def test_all_hosts_tell_the_language_of_several_sources_where_it_is_the_same(
    plugin: Path, launcher: str, recording: RunningServer, command: str, language: str
) -> None:
    words = written(command)
    sessions = [*by_host(HOST, words, recording), *by_host([launcher], words, recording)]
    # Each compiler overwrites the statistics of the one before.
    sessions += by_plugin(words, plugin, recording)
    assert [labels(recording, session).get("language") for session in sessions] == [language, language, language]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["clang-22 one.c two.cc", "clang-22 one.c -x c++ two.c"])
def test_launchers_whose_one_session_decides_for_sources_of_two_languages_tell_none(
    launcher: str, recording: RunningServer, command: str
) -> None:
    words = written(command)
    for host in (HOST, [launcher]):
        (session,) = by_host(host, words, recording)
        assert "language" not in labels(recording, session)


def written(command: str) -> list[str]:
    """Write the sources of a command; give its words."""
    words = [*command.split(), "-Oz", "-w", "-c"]
    for name in words:
        if name.startswith(("one.", "two.")):
            write_source(Path.cwd(), name)
    return words


def by_host(host: list[str], words: list[str], server: RunningServer) -> list[str]:
    """Compile by a host; give the sessions."""
    options = ("--server", server.socket, "--policy", "never", "--fallback", "error")
    sessions: list[str] = run(host, options, words).stats["sessions"]
    return sessions


def by_plugin(words: list[str], plugin: Path, server: RunningServer, given: bytes = b"") -> list[str]:
    """Compile by the plugin; give the sessions."""
    settings = {"SERVER": server.socket, "POLICY": "never", "FALLBACK": "error", "STATS": "stats.json"}
    environment = {**os.environ, **{f"POLICYBRIDGE_{name}": value for name, value in settings.items()}}
    subprocess.run([*words, f"-fpass-plugin={plugin}"], env=environment, check=True, input=given)
    sessions: list[str] = json.loads(Path("stats.json").read_text())["sessions"]
    return sessions


def test_the_launcher_asks_clang_once(launcher: str, recording: RunningServer, folder: Path) -> None:
    write_source(folder)
    for _ in range(2):
        ran = compiled([launcher], recording, AARCH64)
        assert labels(recording, ran.stats["sessions"][0])["target"] == "aarch64"
    kept = [each.read_text() for each in (folder / "cache" / "policybridge" / "llvm-versions").iterdir()]
    assert sorted(kept) == ["22", "aarch64"]


@pytest.mark.parametrize("options", [("--policy", "never"), ("--decisions", "stored")])
def test_a_command_asks_for_llvms_version_once_where_no_answer_is_kept(
    launcher: str, recording: RunningServer, folder: Path, options: tuple[str, str]
) -> None:
    write_source(folder)
    # The name of a wrapper does not tell which compiler it starts.
    wrapper, compiler = folder / "wrapper", folder / "clang"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\nexec {need("clang-22")} "$@"\n')
    wrapper.chmod(0o755)
    compiler.symlink_to(wrapper)
    heading = "module llvm=22 level=Oz by=sequence digest=- path=module.c"
    (folder / "stored").write_text(f"policybridge-decisions 1\n{heading}\n0123456789abcdef.0 inline f g\n")
    for host in (HOST, [launcher]):
        given = (*options, "--server", recording.socket) if "--policy" in options else options
        ran = run(host, given, (str(compiler), "-Oz", "-c", "module.c", "-o", "made.o"))
        assert (ran.status, ran.stats["fallback"]) == (0, None), ran
        assert (folder / "asked").read_text().count("--version") == 1
        (folder / "asked").unlink()


def test_a_label_of_the_user_wins(launcher: str, recording: RunningServer, folder: Path) -> None:
    write_source(folder)
    for host in (HOST, [launcher]):
        ran = compiled(list(host), recording, label="target=mine")
        assert labels(recording, ran.stats["sessions"][0])["target"] == "mine"


@pytest.mark.parametrize("evaluate", ["auto", "here", "there"])
@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_a_policy_whose_inlining_is_for_other_levels_leaves_all_to_the_compiler_and_the_reason_is_told(
    launcher: str, recording: RunningServer, folder: Path, evaluate: str, transport: str
) -> None:
    words = ("clang-22", "-O2", "-c", write_source(folder).name, "-o", "made.o")
    subprocess.run(words, check=True)
    expected = Path("made.o").read_bytes()
    where = ("--server", getattr(recording, transport), "--evaluate", evaluate)
    fault = (
        "small-kind@1 decides inlining_decision for level Oz, and the compilation has 'O2' ([kinds.inlining_decision"
    )
    # The launcher is linked statically, without gRPC.
    for host in [HOST, [launcher]][: 1 if transport == "grpc" else 2]:
        ran = run(host, (*where, "--policy", "small-kind", "--fallback", "error"), words)
        assert (ran.status, ran.output) == (0, expected)
        assert ran.said == f"policybridge-run: all decisions are the compiler's own: {fault}.scope] in policy.toml)\n"
        assert ran.stats["fallback"]["reason"].startswith(fault)


def test_where_it_is_not_known_there_is_no_label(launcher: str, recording: RunningServer, folder: Path) -> None:
    write_source(folder)
    (folder / "empty.cfg").write_text("")
    for host in (HOST, [launcher]):
        ran = compiled(list(host), recording, "--config=./empty.cfg")
        assert labels(recording, ran.stats["sessions"][0]) == {
            "level": "Oz",
            "phase": "compile",
            "llvm": "22",
            "language": "c",
        }
