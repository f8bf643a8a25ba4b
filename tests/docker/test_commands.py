"""The commands of the compose stack, run as they stand in docker/compose.yaml, outside containers."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import grpc
import pytest

from policybridge_bench.processes import free_port
from policybridge_client.cli import COMMANDS, Command
from policybridge_client.command_line import Parser
from tests.certificates import token, write_tokens
from tests.client.compilers import write_pressure
from tests.docker.compose_file import EXAMPLE, Outside, defaults, services, words
from tests.locks import one_at_a_time
from tests.needs import ROOT
from tests.server.access.doors import listed
from tests.training.corpus.projects import write_project

MAPPED = "[::ffff:127.0.0.1]:0"
"""The server does not take this for loopback, and nobody else can reach it."""


@pytest.fixture
def outside() -> Iterator[Outside]:
    with TemporaryDirectory(prefix="pb-") as name:
        yield Outside(Path(name))


@contextmanager
def served(outside: Outside, *arguments: str, **environment: str) -> Iterator[list[str]]:
    """Run the image's entry point with ``arguments``; give the addresses of its ready line."""
    words = [outside.place(word) for word in ("policybridge-serve", *arguments)]
    environ = {**outside.environment(), **environment}
    # The child looks for the program on the PATH that it is given.
    process = subprocess.Popen(["/usr/bin/env", *words], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        word, *addresses = process.stdout.readline().split() or ["nothing"]
        assert word == "ready", process.wait(60)
        yield addresses
    finally:
        process.terminate()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.stdout.close()


def run(outside: Outside, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    placed = ["/usr/bin/env", *map(outside.place, words)]
    environ = {**outside.environment(), **environment}
    return subprocess.run(placed, env=environ, capture_output=True, text=True, timeout=300, check=False)


def test_the_server_is_healthy_and_the_compilers_build_through_it(outside: Outside, tmp_path: Path) -> None:
    stack = services()
    project = tmp_path / "sources" / "one"
    project.mkdir(parents=True)
    (project / "Makefile").write_text("one.o: one.c\n\t$(CC) -Oz -c one.c\n")
    (project / "one.c").write_text(
        "static int add(int x) { return x * 3 + 1; }\n"
        "int sum(int n) { int s = 0; for (int i = 0; i < n; i++) s += add(i) * add(i + 1); return s; }\n"
    )
    given = {name: outside.place(str(value)) for name, value in stack["compiler"]["environment"].items()}
    given |= {"SOURCES": str(project.parent), "WORK": str(tmp_path / "work"), "ROUNDS": "1", "PAUSE": "0"}
    given |= {"CLANG": f"{sys.executable} -m ziglang cc", "BUILD": "make"}
    with served(outside, *words(stack["server"]["command"])) as addresses:
        assert f"socket:{outside.folder}/run/policybridge/server.sock" in addresses
        health = run(outside, *words(stack["server"]["healthcheck"]["test"]))
        assert (health.returncode, health.stdout) == (0, "serving\n"), health.stderr
        built = run(outside, *words(stack["compiler"]["command"]), **given)
        assert "build 1: ok" in built.stdout, built.stderr
    gone = run(outside, *words(stack["server"]["healthcheck"]["test"]))
    assert (gone.returncode, gone.stderr[:20]) == (1, "policybridge health:")
    sessions = run(outside, "policybridge", "sessions", "list", "--json", "--ledger", "/ledger/ledger.db").stdout
    session = json.loads(sessions)
    assert session["labels"].items() >= {"project": "one", "builder": os.uname().nodename}.items()
    assert (session["outcome"]["status"], session["decisions"] > 0) == ("ok", True)


def test_with_the_stacks_own_certificates_the_server_speaks_tls_and_wants_the_stacks_token(outside: Outside) -> None:
    made = run(outside, "policybridge-certificates", NAME="localhost")
    assert made.returncode == 0, made.stderr
    before = (outside.folder / "credentials" / "token").read_text()
    assert run(outside, "policybridge-certificates").returncode == 0
    assert (outside.folder / "credentials" / "token").read_text() == before
    assert (outside.folder / "secrets" / "server.key").stat().st_mode & 0o077 == 0
    compiler = services()["compiler-tls"]["environment"]
    with served(outside, *words(services()["server-tls"]["command"]), POLICYBRIDGE_GRPC=MAPPED) as addresses:
        port = next(each for each in addresses if each.startswith("grpcs:")).rpartition(":")[2]
        access = {name: outside.place(compiler[name]) for name in compiler if name.startswith("POLICYBRIDGE_")}
        shown = run(outside, "policybridge", "policies", "list", "--server", f"grpcs:localhost:{port}", **access)
        assert "inliner" in shown.stdout, shown.stderr
        ca = grpc.ssl_channel_credentials((outside.folder / "credentials" / "ca.pem").read_bytes())
        with grpc.secure_channel(f"localhost:{port}", ca) as channel:
            assert listed(channel) == "UNAUTHENTICATED"


def test_without_certificates_and_tokens_the_image_serves_other_machines_only_where_it_is_told_to(
    outside: Outside,
) -> None:
    refused = run(outside, "policybridge-serve", "--demo", POLICYBRIDGE_GRPC=MAPPED)
    assert (refused.returncode, "without TLS and without tokens" in refused.stderr) == (2, True), refused.stderr
    write_tokens(outside.folder / "secrets" / "tokens.toml", {"reader": ["read"]})
    # Options of the environment and arguments are added to the image's own.
    more = f"--grpc {MAPPED} --insecure"
    with served(outside, "--demo", "--max-sessions", "7", POLICYBRIDGE_OPTIONS=more) as addresses:
        first, *_, last = (each.rpartition(":")[2] for each in addresses if re.search(r":\d+$", each))
        assert first != last
        for port in (first, last):
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                assert (listed(channel), listed(channel, token("reader"))) == ("UNAUTHENTICATED", "OK")


def test_the_image_runs_another_command_where_its_name_is_the_first_argument(outside: Outside) -> None:
    said = run(outside, "policybridge-serve", "sessions", "list", "--ledger", "/ledger/none.db")
    assert said.returncode != 0
    assert "none.db" in said.stderr


@pytest.mark.parametrize("service", ["bench", "tune"])
def test_the_commands_of_the_profiles_have_arguments_that_the_command_line_knows(service: str) -> None:
    found = services()[service]
    line = words(found["command"])[-1]
    for name, value in found["environment"].items():
        line = line.replace(f"${name}", value)
    program, name, *arguments = shlex.split(line.removeprefix("exec "))
    assert program == "policybridge"
    parser = Parser(prog=name)
    cast("Command", COMMANDS.load(name)).add_arguments(parser)
    parser.parse_args(arguments)


def test_the_example_of_the_environment_has_every_variable_of_the_stack_with_its_default() -> None:
    lines = (line.partition("#")[0].strip() for line in EXAMPLE.read_text().splitlines())
    assert dict(line.split("=", 1) for line in lines if line) == defaults()


def test_the_ports_of_the_stack_are_published_on_this_machine_alone_but_for_that_with_tls() -> None:
    ports = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert set(ports) >= {"server", "server-tls", "prometheus", "grafana"}
    beyond = {name for name, published in ports.items() if not all(each.startswith("127.0.0.1:") for each in published)}
    assert beyond == {"server-tls"}


def test_every_service_waits_for_what_it_needs_until_that_is_healthy_or_done() -> None:
    stack = services()
    for name, service in stack.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in stack, f"{name} needs {needed}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in stack[needed], f"{name} waits for the health of {needed}, which has none"


def test_a_run_of_the_profile_ray_compiles_on_the_node_of_its_cluster_and_is_published(
    outside: Outside, tmp_path: Path
) -> None:
    stack, port = services(), free_port()
    source = write_pressure(tmp_path).read_text()
    for number in (0, 7):
        # By the split's rule, project 7 is for validation.
        project = tmp_path / "sources" / f"project {number}"
        write_project(project, {"Makefile": "one.o: one.c\n\t$(CC) -O2 -c one.c\n", "one.c": source})
        source += "int calm(int x) { return 3 * x; }\n"

    def given(name: str, **more: str) -> dict[str, str]:
        found = {key: cluster(str(value)) for key, value in stack[name]["environment"].items()}
        return outside.environment({**found, "RAY_TMPDIR": outside.folder, **more})

    def cluster(text: str) -> str:
        return text.replace("ray-head:6379", f"127.0.0.1:{port}").replace("--port 6379", f"--port {port}")

    def start(name: str, ending: ExitStack) -> None:
        command = ["/usr/bin/env", *words(cluster(stack[name]["command"]))]
        environment = {**given(name), "PYTHONUNBUFFERED": "1"}
        node = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert node.stdout is not None
        for end in (node.stdout.close, lambda: node.wait(60), node.terminate):
            ending.callback(end)
        # Nodes of one machine that start at the same moment may take the same ports; containers have their own.
        said = []
        for line in node.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return
        pytest.fail(f"{name} ended: {''.join(said)}")

    with served(outside, *words(stack["server"]["command"])) as addresses, ExitStack() as ending:
        ending.enter_context(one_at_a_time(ROOT / ".cache" / "ray"))
        for name in ("ray-head", "ray-node"):
            start(name, ending)
        health = [cluster(word) for word in words(stack["ray-head"]["healthcheck"]["test"])]
        assert subprocess.run(health, env=given("ray-head"), capture_output=True, check=False).returncode == 0
        options = f"{given('ray-trainer')['TRAIN_OPTIONS']} --jobs 1 --set iterations=1 --set steps=1 --set cases=1"
        server = next(each for each in addresses if each.startswith("grpc:"))
        environment = given("ray-trainer", SERVER=server, SOURCES=str(tmp_path / "sources"), TRAIN_OPTIONS=options)
        command = ["/usr/bin/env", *words(stack["ray-trainer"]["command"])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        shown = run(outside, "policybridge", "policies", "show", "evict-linear", "--server", server).stdout
        assert "trained-by-ray" in shown


def test_a_build_is_made_by_make_unless_another_command_is_named() -> None:
    assert defaults()["BUILD"] == "make"


@pytest.mark.parametrize("wheels", [["one.whl"], []], ids=["wheels", "none"])
def test_an_image_is_built_only_from_the_wheelhouse_if_it_has_wheels(tmp_path: Path, wheels: list[str]) -> None:
    house, pip = tmp_path / "wheelhouse", tmp_path / "pip"
    house.mkdir()
    (house / ".gitignore").touch()
    for name in wheels:
        (house / name).touch()
    pip.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    pip.chmod(0o755)
    script = (ROOT / "docker" / "bin" / "install").read_text()
    placed = script.replace("/opt/policybridge/bin/pip", str(pip)).replace("/wheelhouse", str(house))
    done = subprocess.run(["/bin/sh", "-c", placed, "install", "numpy"], stdout=subprocess.PIPE, text=True, check=True)
    only = ["--no-index", "--find-links", str(house)] if wheels else []
    assert done.stdout.split() == ["install", "--quiet", "--constraint", "constraints.txt", *only, "numpy"]
