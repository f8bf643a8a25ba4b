"""Records of the C++ library that a killed server has not acknowledged, on disk until the next client sends them."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_client.local import decide_here
from policybridge_client.record import Record
from policybridge_client.spool import Spool
from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.native.clients import Connect, NativeSession
from tests.native.library.test_client import Kind
from tests.native.library.test_local_session import (
    HERE,
    cache,
    connect,
    kind,
    opened,
    policies,
    server,
    short_folder,
)
from tests.server.ledger.asking import await_forms, open_network, rows

__all__ = ["cache", "connect", "kind", "policies", "server", "short_folder"]


@dataclass
class Here:
    """A client that decides by itself, and where it keeps records."""

    connect: Connect
    kind: Kind
    spool: Path


@pytest.fixture
def here(connect: Connect, kind: Kind, cache: Path) -> Here:
    return Here(connect, kind, cache.parent / "spool")


@pytest.mark.parametrize("before", [0, 150])
@pytest.mark.parametrize("sender", ["C++", "Python"])
def test_the_record_of_a_killed_server_is_sent_by_the_next_client_of_either_language(
    here: Here, policies: Path, short_folder: Path, sender: str, before: int
) -> None:
    asked, spool = rows(300), here.spool
    listen = ("--grpc", f"unix:{short_folder}/grpc", "--ledger", short_folder / "ledger.db")
    is_grpc = here.kind.transport == "grpc"
    address = f"grpc:unix:{short_folder}/grpc" if is_grpc else f"socket:{short_folder}/server.sock"

    def begun(running: RunningServer) -> NativeSession:
        await_forms(running.socket)
        return here.connect(address).open(PolicyReference("network"), SIGNATURE, SessionOptions("main.c"), HERE)

    with running_server(policies, short_folder, *listen) as running:
        local = begun(running)
        made = b"".join(local.evaluate(row).tobytes() for row in asked[:before])
        local.context("f")
        running.kill()
    made += b"".join(local.evaluate(row).tobytes() for row in asked[before:])
    local.close()
    (file,) = spool.iterdir()
    assert (spool.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    with running_server(policies, short_folder, *listen) as running:
        if sender == "C++":
            begun(running).close()
        else:
            await_forms(running.socket)
            with open_network(address, SessionOptions(evaluates=True)) as session:
                decide_here(session, SIGNATURE, spool=Spool()).close()
        assert list(spool.iterdir()) == []
    with LedgerReader(short_folder / "ledger.db") as reader:
        found = reader.session(local.id)
        batches = list(reader.trajectory(found).batches)
    assert (found.decisions, found.lost, found.interrupted) == (300, 0, False)
    assert b"".join(batch.observations.tobytes() for batch in batches) == b"".join(row.tobytes() for row in asked)
    assert b"".join(batch.advices.tobytes() for batch in batches) == made
    contexts = [each for batch in batches for each in batch.contexts.tolist()]
    assert contexts == ["main.c"] * before + ["f"] * (300 - before)


@pytest.mark.parametrize("wrong", ["half", "link", "pipe", "folder", "hard link", "too large", "writable folder"])
def test_what_is_no_whole_record_of_this_user_is_not_sent(
    here: Here, server: RunningServer, tmp_path: Path, wrong: str
) -> None:
    spool, address = here.spool, here.kind.address(server)
    record = Record("0" * 32, PolicyVersion("network", 99, ""), PolicyReference("network"), SessionOptions())
    assert Spool().keep(address, record)
    (file,) = spool.iterdir()
    whole = file.read_bytes()
    if wrong == "half":
        file.write_bytes(whole[:-5])
    elif wrong == "hard link":
        os.link(file, tmp_path / "another")
    elif wrong == "too large":
        os.truncate(file, 1 << 40)
    elif wrong == "writable folder":
        spool.chmod(0o777)
    else:
        file.unlink()
        (tmp_path / "secret").write_bytes(whole)
        if wrong == "link":
            file.symlink_to(tmp_path / "secret")
        else:
            (os.mkfifo if wrong == "pipe" else os.mkdir)(file)
    opened(here.connect, here.kind, server, HERE).close()
    assert len(list(spool.iterdir())) == (0 if wrong == "half" else 1)
    if wrong == "hard link":
        # A whole record of a version that there is not goes to the server, which refuses it for good.
        (tmp_path / "another").unlink()
        opened(here.connect, here.kind, server, HERE).close()
        assert list(spool.iterdir()) == []
