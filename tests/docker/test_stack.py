"""The compose stack in real containers, from its start to its second start; Grafana alone is left out.

Grafana comes from a registry of images, which the tests do without. The tests are the stages of one stack's life, in
their order. They are no part of `make test`: `make compose` runs them.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docker.engine import engine
from tests.docker.images import make_images
from tests.docker.stack import Stack, fetch, running, wait_for
from tests.needs import ROOT

_FUNCTIONS = 4_000
"""Of the compilation that is under way when its server is killed: a few seconds on a fast machine."""

_SETTINGS = {
    # Five modules, and a build a second: as much as two cores do beside the rest.
    "BUILD": "make ONLY=p",
    "PAUSE": "1",
    "STATS": "/stats",
    "TRAIN_OPTIONS": "--set iterations=1 --set steps=1 --set cases=2",
    "TUNE_OPTIONS": "--budget 2 --module *percent*",
    "BENCH": "--rounds 1 --seconds 0.1 --clients 1",
}


# Beside other work the images, which the first test makes, take several times what they take alone.
pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    podman = engine(ROOT / ".cache" / "containers")
    make_images(podman)
    with TemporaryDirectory(prefix="pb-") as name, running(podman, Path(name), **_SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def kept() -> set[str]:
    """Give the ids of sessions whose outcomes were acknowledged; the stages add theirs."""
    return set()


def acknowledged(stack: Stack) -> set[str]:
    """Give the ids of the sessions whose compilers have reported to the server, and were decided by it alone."""
    written = stack.execute("compiler", "sh", "-c", "cat /stats/*.json 2>/dev/null | tr -d '\\n'", check=False)
    decoder, found, at = json.JSONDecoder(), set(), 0
    while at < len(written):
        report, at = decoder.raw_decode(written, at)
        if report["fallback"] is None and report["error"] is None:
            found |= set(report["sessions"])
    return found


def rounds(stack: Stack) -> int:
    """Give the number of builds that the first compiler has done since it was started."""
    return stack.podman("logs", stack.name("compiler")).count(": ok")


def test_the_compilers_compile_through_the_server_and_prometheus_sees_it(stack: Stack) -> None:
    stack.up("server", "prometheus")
    stack.wait_healthy("server")
    stack.wait_healthy("prometheus")
    stack.up("compiler")
    wait_for(lambda: len(acknowledged(stack)) >= 2, "two compilations")
    wait_for(lambda: stack.ask("sum(policybridge_decisions_total)") > 0, "decisions in Prometheus")
    for service in ("server", "compiler"):
        assert stack.execute(service, "id", "-u").strip() == "10001"


def test_three_compilers_share_the_servers_socket(stack: Stack) -> None:
    stack.up("compiler", scale="compiler=3")
    wait_for(lambda: len({each["labels"]["builder"] for each in stack.sessions()}) == 3, "sessions of three compilers")
    for number in (2, 3):
        stack.podman("stop", stack.name("compiler", number))


def test_over_tls_compilers_ask_with_the_stacks_own_certificate_and_token(stack: Stack) -> None:
    stack.up("certificates", profile="tls")
    assert stack.podman("wait", stack.name("certificates")).strip() == "0"
    stack.up("server-tls", profile="tls")
    stack.wait_healthy("server-tls")
    stack.up("compiler-tls", profile="tls")
    wait_for(lambda: any(each["outcome"] for each in stack.sessions("server-tls")), "a compilation over TLS")
    assert {each["outcome"]["status"] for each in stack.sessions("server-tls") if each["outcome"]} == {"ok"}
    for service in ("compiler-tls", "server-tls"):
        stack.podman("stop", "--time", "30", stack.name(service))
    assert stack.inspect("server-tls", "{{.State.ExitCode}}") == "0"


def test_the_trainer_makes_a_corpus_and_publishes_what_it_learnt_from_it(stack: Stack) -> None:
    stack.up("trainer")
    assert stack.podman("wait", stack.name("trainer")).strip() == "0", stack.podman("logs", stack.name("trainer"))
    asked = ("policybridge", "policies", "list", "--server", "grpc:127.0.0.1:50051")
    assert "evict-linear" in stack.execute("server", *asked)


def test_a_compilation_outlives_a_kill_of_its_server_which_comes_back_by_itself(
    stack: Stack, kept: set[str], tmp_path: Path
) -> None:
    before = stack.inspect("server", "{{.State.StartedAt}}")
    process = int(stack.inspect("server", "{{.State.Pid}}"))
    kept |= acknowledged(stack)
    with large_compilation(stack, tmp_path) as compiler:
        # As the kernel would for want of memory; podman's own `kill` would count as the operator's wish.
        os.kill(process, signal.SIGKILL)
        _, told = compiler.communicate(timeout=300)
    assert compiler.returncode == 0, told
    report = json.loads(stack.execute("compiler", "cat", "/tmp/large.json"))
    assert (report["status"], report["fallback"] is None) == (0, False), report
    assert stack.execute("compiler", "sh", "-c", "test -s /tmp/large.o && echo there") == "there\n"
    wait_for(lambda: stack.inspect("server", "{{.State.StartedAt}}") != before, "the server's restart")
    stack.wait_healthy("server")
    # Those that were under way at the kill may have been told nothing; what begins after it has a server again.
    done = rounds(stack)
    wait_for(lambda: rounds(stack) >= done + 2, "a build that began after the kill")
    doubtful = acknowledged(stack)
    wait_for(lambda: len(acknowledged(stack) - doubtful) >= 2, "compilations by the server that came back")
    kept |= acknowledged(stack) - doubtful


@contextmanager
def large_compilation(stack: Stack, tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """Compile in the first compiler's container what takes many seconds; its session is open in the block."""
    # Small functions beside each other: a chain of calls would take LLVM minutes.
    pair = "static int g{n}(int x) {{ return x * {n} + 1; }} int f{n}(int x) {{ return g{n}(x) + g{n}(x + {n}); }}"
    (tmp_path / "large.c").write_text("\n".join(pair.format(n=n) for n in range(_FUNCTIONS)) + "\n")
    stack.podman("cp", tmp_path / "large.c", f"{stack.name('compiler')}:/tmp/large.c")
    ask = ("policybridge", "run", "--policy", "inliner", "--server", "socket:/run/policybridge/server.sock")
    compiler = ("clang-19", "-Oz", "-c", "/tmp/large.c", "-o", "/tmp/large.o")
    words = ["podman", "exec", stack.name("compiler"), *ask, "--stats", "/tmp/large.json", "--", *compiler]
    with subprocess.Popen(words, env=stack.podman.environment, stderr=subprocess.PIPE, text=True) as process:
        state = f"{stack.http}/page/state"
        wait_for(lambda: any("large.c" in each["file"] for each in fetch(state)["live"]), "the session of large.c")
        yield process


def test_an_alert_fires_while_the_server_is_stopped_which_drains_it(stack: Stack) -> None:
    stack.podman("stop", stack.name("compiler"))
    stack.podman("stop", "--time", "30", stack.name("server"))
    assert stack.inspect("server", "{{.State.ExitCode}}") == "0"
    wait_for(lambda: "PolicyBridgeDown" in stack.firing(), "the alert")
    stack.podman("start", stack.name("server"))
    wait_for(lambda: "PolicyBridgeDown" not in stack.firing(), "the alert's end")


def test_after_down_and_up_the_ledger_has_every_session_that_was_acknowledged(stack: Stack, kept: set[str]) -> None:
    assert len(kept) > 3
    stack.down()
    stack.up("server")
    stack.wait_healthy("server")
    found = {each["id"]: each for each in stack.sessions()}
    assert kept <= found.keys()
    assert {found[each]["outcome"]["status"] for each in kept} == {"ok"}


@pytest.mark.parametrize("profile", ["bench", "tune"])
def test_the_profiles_do_their_work_and_end(stack: Stack, profile: str) -> None:
    stack.up(profile, profile=profile)
    assert stack.podman("wait", stack.name(profile)).strip() == "0", stack.podman("logs", stack.name(profile))
