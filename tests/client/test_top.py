"""``policybridge top``: a server in a terminal."""

import json
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policybridge_client.connection import connect
from policybridge_client.page import PageClient
from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec
from tests.conftest import RunningServer, command, running_server

SIGNATURE = Signature.of([TensorSpec("inlining_default", ElementType.INT64)], TensorSpec("decision", ElementType.INT64))
TOKEN = "r" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("top")
    (folder / "tokens.toml").write_text(f'[reader]\ntoken = "{TOKEN}"\nscopes = ["read"]\n')
    (folder / "tokens.toml").chmod(0o600)
    (folder / "token").write_text(f"{TOKEN}\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with running_server(None, folder, "--http", "127.0.0.1:0", "--tokens", folder / "tokens.toml") as running:
        yield running


def top(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command("top", *words), capture_output=True, text=True, timeout=60, check=False)


def test_policies_and_live_sessions_are_shown_and_names_cannot_steer_the_terminal(
    server: RunningServer, folder: Path
) -> None:
    options = SessionOptions("\x1b[31mred[/]\x1b]0;title\x07.c")
    show = ("--server", server.others[1], "--token-file", folder / "token")
    with connect(server.socket, timeout=60).open(PolicyReference("inlining-default"), SIGNATURE, options) as session:
        shown = top(*show, "--once")
        found = json.loads(top(*show, "--json").stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "1 sessions" in shown.stdout
    assert f"{session.id[:12]}  inlining-default@1" in shown.stdout
    assert "[31mred[/]" in shown.stdout
    assert not {"\x1b", "\x07"} & set(shown.stdout)
    assert found["state"]["live"][0]["id"] == session.id


def test_a_refusal_and_a_server_that_is_not_there_are_told_with_an_exit_status(server: RunningServer) -> None:
    refused = top("--server", server.others[1], "--once")
    assert (refused.returncode, "wants a token" in refused.stderr) == (1, True), refused.stderr
    missing = top("--server", "http:127.0.0.1:1", "--once")
    assert (missing.returncode, "does not answer" in missing.stderr) == (1, True), missing.stderr
    for address, said in (("grpc:127.0.0.1:1", "is not http:HOST:PORT"), ("127.0.0.1:99999", "is not http:HOST:PORT")):
        wrong = top("--server", address, "--once")
        assert (wrong.returncode, said in wrong.stderr) == (1, True), wrong.stderr


def test_an_answer_that_is_too_deep_is_no_page_of_a_server() -> None:
    def answer() -> None:
        with listener.accept()[0] as peer:
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(answer)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with PageClient(address) as client, pytest.raises(InvalidError, match="is not the HTTP address"):
            client.get("state")
