"""The LLVM host with real compilers and a real server, while everything goes well."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policybridge_client.connection import connect
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.record import scope_labels
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_serdes import PolicyReference
from tests.client.compilers import DRIVERS, ZIG, parameters, start, write_pressure, write_source
from tests.conftest import RunningServer, command, running_server
from tests.repositories import write_python


@pytest.fixture(autouse=True)
def channels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the channels of this process there too."""
    monkeypatch.setattr("tempfile.tempdir", str(folder / "channels"))


def compile_with(server: RunningServer | str, policy: str, words: Sequence[str], task: str = "inline") -> Report:
    address = server if isinstance(server, str) else server.socket
    report = run_compiler(words, HostConfig(PolicyReference.parse(policy), address, task=task, fallback="error"))
    report.raise_error()
    return report


def plain(words: Sequence[str], output: str) -> bytes:
    subprocess.run(words, check=True)
    made = Path(output).read_bytes()
    Path(output).unlink()
    return made


def words_for(compiler: str, *arguments: str) -> list[str]:
    return [*start(compiler), "-c", *arguments, "-o", "made.o"]


@pytest.mark.parametrize("compiler", DRIVERS)
@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_an_echo_of_the_default_gives_the_plain_object(
    server: RunningServer, folder: Path, compiler: str, transport: str
) -> None:
    words = words_for(compiler, "-Oz", write_source(folder).name)
    expected = plain(words, "made.o")
    report = compile_with(getattr(server, transport), "echo", words)
    assert Path("made.o").read_bytes() == expected
    assert report.statistics.decisions >= 16
    assert (report.status, report.fallback) == (0, None)


@pytest.mark.parametrize("compiler", ["ziglang", *parameters("clang-22")])
@pytest.mark.parametrize("level", ["-O1", "-Os", "-O2", "-O3"])
def test_an_echo_gives_the_plain_object_at_every_level_where_llvm_sends_its_default(
    server: RunningServer, folder: Path, compiler: str, level: str
) -> None:
    words = words_for(compiler, level, write_source(folder).name)
    expected = plain(words, "made.o")
    compile_with(server, "echo", words)
    assert Path("made.o").read_bytes() == expected


@pytest.mark.parametrize("name", parameters("opt-19", "opt-22"))
def test_opt_asks_without_a_driver(server: RunningServer, folder: Path, name: str) -> None:
    clang = name.replace("opt", "clang")
    emit = ["-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-Oz"]
    subprocess.run([clang, *emit, write_source(folder).name, "-o", "module.ll"], check=True)
    words = [name, "-passes=default<Oz>", "-S", "module.ll", "-o", "made.ll"]
    expected = plain(words, "made.ll")
    assert compile_with(server, "echo", words).statistics.decisions >= 16
    assert Path("made.ll").read_bytes() == expected


def test_eight_compilations_at_once_do_not_disturb_each_other(server: RunningServer, folder: Path) -> None:
    sources = [write_source(folder, f"module{n}.c", functions=4 + n) for n in range(8)]
    commands = [[*ZIG, "-Oz", "-c", source.name, "-o", f"{source.stem}.o"] for source in sources]
    expected = [plain(words, words[-1]) for words in commands]
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda words: run_compiler(words, echo_config(server)), commands))
    assert [Path(words[-1]).read_bytes() for words in commands] == expected
    assert len({session for report in reports for session in report.statistics.sessions}) == 8


def echo_config(server: RunningServer) -> HostConfig:
    return HostConfig(PolicyReference("echo"), server.socket, fallback="error")


@pytest.mark.parametrize("compiler", DRIVERS)
def test_the_policy_decides(server: RunningServer, folder: Path, compiler: str) -> None:
    words = words_for(compiler, "-Oz", write_source(folder).name)
    never = compile_with(server, "never@1", words)
    never_made = Path("made.o").read_bytes()
    always = compile_with(server, "always", words)
    assert {
        **never.to_json(),
    }["advice"] == {"0": never.statistics.decisions}
    # It answers 7: any number but 0 means inline, and LLVM gets a 1.
    assert always.to_json()["advice"] == {"1": always.statistics.decisions}
    assert Path("made.o").read_bytes() != never_made


def test_a_connection_may_serve_many_compilations(server: RunningServer, folder: Path) -> None:
    words = words_for("ziglang", "-Oz", write_source(folder).name)
    connection = connect(server.grpc)
    reports = [run_compiler(words, echo_config(server), connection=connection) for _ in range(3)]
    connection.close()
    assert len({report.statistics.sessions[0] for report in reports}) == 3


def test_an_identical_second_zig_command_asks_again(server: RunningServer, folder: Path) -> None:
    words = words_for("ziglang", "-Oz", write_source(folder).name)
    plain(words, "made.o")
    reports = [compile_with(server, "never", words) for _ in range(2)]
    assert reports[0].statistics.decisions == reports[1].statistics.decisions > 0
    made = Path("made.o").read_bytes()
    assert plain(words, "made.o") != made


@pytest.mark.parametrize("compiler", DRIVERS)
def test_two_sources_in_one_command_are_one_session(server: RunningServer, folder: Path, compiler: str) -> None:
    names = [write_source(folder, f"{name}.c", functions).name for name, functions in (("a", 3), ("b", 5))]
    words = [*start(compiler), "-Oz", "-r", "-nostdlib", *names, "-o", "both.o"]
    expected = plain(words, "both.o")
    report = compile_with(server, "echo", words)
    assert Path("both.o").read_bytes() == expected
    assert len(report.statistics.sessions) == 1


@pytest.mark.parametrize("compiler", DRIVERS)
@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["-E", "module.c"], ["-fsyntax-only", "module.c"], ["-O0", "-c", "module.c"], ["-c", "wrong.c"]],
    ids=" ".join,
)
def test_a_command_that_asks_nothing_is_the_bare_compilers(
    server: RunningServer, folder: Path, compiler: str, arguments: list[str]
) -> None:
    write_source(folder)
    (folder / "wrong.c").write_text("int f( {\n")
    words = [*start(compiler), "-Wall", "-Werror", *arguments]
    bare = subprocess.run(words, capture_output=True, check=False)
    hosted = run_hosted(server, "echo", words)
    assert (hosted.returncode, hosted.stdout, hosted.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def run_hosted(
    server: RunningServer, policy: str, words: Sequence[str], *options: str, stdin: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    hosted = command("run", "--policy", policy, "--server", server.socket, *options, "--", *words)
    return subprocess.run(hosted, capture_output=True, check=False, input=stdin)


@pytest.mark.parametrize("compiler", DRIVERS)
def test_a_link_is_the_bare_compilers(server: RunningServer, folder: Path, compiler: str) -> None:
    (folder / "main.c").write_text("int _start(void) { return 0; }\n")
    subprocess.run([*start(compiler), "-c", "main.c", "-o", "main.o"], check=True)
    words = [*start(compiler), "-Werror", "-nostdlib", "-r", "main.o", "-o", "linked.o"]
    hosted = run_hosted(server, "echo", words)
    assert (hosted.returncode, hosted.stdout, hosted.stderr) == (0, b"", b"")


@pytest.mark.parametrize("compiler", DRIVERS)
def test_a_source_from_stdin_is_compiled(server: RunningServer, folder: Path, compiler: str) -> None:
    source = write_source(folder).read_bytes()
    hosted = run_hosted(
        server, "echo", [*words_for(compiler, "-Oz", "-x", "c", "-")], "--stats", "%p.json", stdin=source
    )
    assert (hosted.returncode, hosted.stderr) == (0, b"")
    (stats,) = (json.loads(path.read_text()) for path in folder.glob("*.json"))
    assert stats["decisions"] >= 16


@pytest.mark.parametrize("way", ["socket", "grpc"])
def test_kinds_of_decisions_that_llvm_does_not_ask_for_are_told(server: RunningServer, folder: Path, way: str) -> None:
    words = words_for("ziglang", "-Oz", write_source(folder).name)
    address = server.grpc if way == "grpc" else server.socket
    hosted = subprocess.run(
        command("run", "--policy", "both", "--server", address, "--stats", "stats.json", "--", *words),
        capture_output=True,
        check=False,
    )
    (told,) = hosted.stderr.decode().splitlines()
    assert hosted.returncode == 0
    cure = "(policybridge doctor tells where to get it)"
    assert told.endswith(f": the policy decides pass_choice, too, for which LLVM asks through a plugin alone {cure}")
    stats = json.loads(Path("stats.json").read_text())
    assert stats["not_asked"] == ["pass_choice"]
    assert stats["decisions"] >= 16


def test_a_compilation_over_grpc_says_nothing_of_grpc(server: RunningServer, folder: Path) -> None:
    words = words_for("ziglang", "-Oz", write_source(folder).name)
    hosted = subprocess.run(
        command("run", "--policy", "echo", "--server", server.grpc, "--", *words), capture_output=True, check=False
    )
    assert (hosted.returncode, hosted.stdout, hosted.stderr) == (0, b"", b"")


def test_a_wrapper_may_stand_before_the_compiler(server: RunningServer, folder: Path) -> None:
    wrapper = folder / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$@"\n')
    wrapper.chmod(0o755)
    words = ["./wrapper", *words_for("ziglang", "-Oz", write_source(folder).name)]
    assert compile_with(server, "echo", words).statistics.decisions >= 16


def test_the_statistics_file_says_what_happened(server: RunningServer, folder: Path) -> None:
    words = words_for("ziglang", "-Oz", write_source(folder).name)
    hosted = run_hosted(server, "never@stable-not", words, "--stats", "failed.json", "--fallback", "error")
    assert hosted.returncode == 70
    options = ["--stats", "stats-%p.json", "--label", "project=a=b", "--option", "raise_at=1000"]
    assert run_hosted(server, "never@1", words, *options).returncode == 0
    (stats,) = (json.loads(path.read_text()) for path in folder.glob("stats-*.json"))
    assert stats["policy"] == {"name": "never", "version": 1, "digest": stats["policy"]["digest"]}
    assert (stats["task"], stats["status"], stats["fallback"], stats["error"]) == ("inline", 0, None, None)
    assert stats["advice"] == {"0": stats["decisions"]}
    assert len(stats["sessions"]) == 1
    assert 0 < stats["latency_us"]["p50"] <= stats["latency_us"]["p99"]
    assert 0 < stats["seconds"] < 60
    assert stats["command"] == words
    failed = json.loads((folder / "failed.json").read_text())
    assert (failed["error"]["status"], failed["status"], failed["decisions"]) == (5, 70, 0)


@pytest.mark.parametrize("name", parameters("llc-19", "llc-22"))
@pytest.mark.parametrize(("task", "policy"), [("evict", "legal"), ("priority", "weight")])
def test_the_register_allocator_asks(server: RunningServer, folder: Path, name: str, task: str, policy: str) -> None:
    clang = name.replace("llc", "clang")
    subprocess.run([clang, "-O2", "-S", "-emit-llvm", write_pressure(folder).name, "-o", "module.ll"], check=True)
    report = compile_with(server, policy, [name, "-O2", "module.ll", "-o", "made.s"], task=task)
    assert report.statistics.decisions > 10
    assert "f:" in Path("made.s").read_text()


def test_zig_asks_for_evictions_too(server: RunningServer, folder: Path) -> None:
    words = words_for("ziglang", "-O2", write_pressure(folder).name)
    assert compile_with(server, "legal", words, task="evict").statistics.decisions > 0


def test_what_never_asks_is_said_to(server: RunningServer) -> None:
    for words, task, error in (
        (["gcc-none", "-c", "x.c"], "inline", InvalidError),
        ([], "inline", InvalidError),
        (["llc", "x.ll"], "inline", InvalidError),
        (["opt", "x.ll"], "evict", InvalidError),
        ([*ZIG, "x.c"], "outline", NotFoundError),
    ):
        with pytest.raises(error):
            compile_with(server, "echo", words, task=task)


def test_a_compiler_that_is_not_there_is_127_as_in_a_shell(server: RunningServer) -> None:
    hosted = run_hosted(server, "echo", ["./clang-1000", "-c", "x.c"])
    assert hosted.returncode == 127
    assert b"clang-1000" in hosted.stderr


def test_surroundings_are_the_callers_to_choose(server: RunningServer, folder: Path) -> None:
    (folder / "inner").mkdir()
    write_source(folder / "inner")
    with (folder / "said").open("wb") as said:
        surroundings = Surroundings(cwd=folder / "inner", env={**os.environ, "X": "1"}, stdout=said)
        words = [*ZIG, "-Oz", "-c", "module.c", "-o", "made.o"]
        assert run_compiler(words, echo_config(server), surroundings).status == 0
    assert (folder / "inner" / "made.o").exists()
    assert sys.executable in words


@pytest.mark.parametrize("policy", ["never@1", PolicyReference("never", version=1)])
def test_a_policy_is_given_as_a_reference_or_as_text(policy: PolicyReference | str) -> None:
    assert HostConfig(policy, "socket:s").reference == PolicyReference("never", version=1)


@pytest.mark.parametrize("policy", [None, 7, "", b"never"])
def test_what_is_no_policy_is_refused_when_the_config_is_made(policy: object) -> None:
    with pytest.raises(InvalidError, match="a policy is NAME, NAME@VERSION, NAME@ALIAS or a PolicyReference, not "):
        HostConfig(policy, "socket:s")  # type: ignore[arg-type]


def test_a_policy_reads_the_source_that_asks_about_inlining(folder: Path) -> None:
    write_python(folder / "policies", "told", "class Policy:\n" + _NOTES_CONTEXT.format(file=str(folder / "told")))
    words = words_for("ziglang", "-Oz", write_source(folder, "named.c").name)
    with running_server(folder / "policies", folder) as server:
        compile_with(server, "told", words)
    assert set((folder / "told").read_text().split()) == {"named.c"}


_NOTES_CONTEXT = """
    def evaluate(self, observation, session):
        with open({file!r}, "a") as file:
            file.write(session.context + "\\n")
        return observation["inlining_default"]
"""


@pytest.mark.parametrize(
    ("command", "labels"),
    [
        ("clang -Oz -c x.c", {"level": "Oz", "phase": "compile", "language": "c"}),
        ("clang -O3 -flto -c x.cc", {"level": "O2", "phase": "pre-link", "language": "c++"}),
        ("clang -Os -flto=thin -fno-lto -c x.m", {"level": "Os", "phase": "compile", "language": "objective-c"}),
        ("clang -Oz -c x.f90", {"level": "Oz", "phase": "compile"}),
        ("clang -Oz -c x.c y.c", {"level": "Oz", "phase": "compile", "language": "c"}),
        ("clang -Oz -c x.c y.cc", {"level": "Oz", "phase": "compile"}),
        ("clang -Oz @more.rsp", {}),
        ("opt -passes=default<Oz> x.bc", {}),
    ],
)
def test_a_session_has_the_labels_that_a_scope_is_compared_with(command: str, labels: dict[str, str]) -> None:
    assert scope_labels(CompilerCommand.of(command.split())) == labels


@pytest.mark.parametrize("compiler", DRIVERS)
@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("small", "small@1 is for level Oz, and the compilation has 'O2' ([scope]"),
        ("small-kind", "small-kind@1 decides inlining_decision for level Oz, and the compilation has 'O2' ([kinds."),
    ],
)
def test_outside_of_a_policys_scope_the_compiler_decides(
    server: RunningServer, folder: Path, compiler: str, policy: str, fault: str
) -> None:
    words = words_for(compiler, "-O2", write_source(folder).name)
    expected = plain(words, "made.o")
    report = compile_with(server, policy, words)
    assert (report.status, report.statistics.decisions) == (0, 0)
    assert report.fallback is not None
    assert fault in report.fallback.reason
    assert Path("made.o").read_bytes() == expected
