"""A server with every door that others can reach, and what its clients send."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from policybridge.v1 import policy_service_pb2 as policy
from policybridge.v1 import repository_service_pb2 as repository
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from tests.conftest import command
from tests.repositories import answering, write_python
from tests.serving import started

GRPC = ("grpc", "grpcio")

_FILES = ("socket:", "pipe:", "grpc:unix:")


@dataclass
class Doors:
    """A server that has printed its ready line.

    Attributes:
        addresses: by the options that opened them: HOST:PORT or a path.

    """

    process: subprocess.Popen[str]
    addresses: dict[str, str]


@contextmanager
def opened(folder: Path, *arguments: object, doors: tuple[str, ...] = ("grpc", "grpcio", "http")) -> Iterator[Doors]:
    """Serve one policy, ``one``, on a free port for each of ``doors``; standard error goes to ``folder/log``."""
    if not (folder / "policies").exists():
        write_python(folder / "policies", "one", answering("1"))
    listen = [word for door in doors for word in (f"--{door}", "127.0.0.1:0")]
    words = ["--repository", folder / "policies", "--allow-python", *listen, *arguments]
    with started(*words, log=folder / "log") as (process, addresses):
        ports = [each.partition(":")[2] for each in addresses if not each.startswith(_FILES)]
        yield Doors(process, dict(zip(doors, ports, strict=False)))


def refused(*arguments: object) -> str:
    """Give what a server says that does not start."""
    ended = subprocess.run(command("serve", *arguments), capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr


def bearer(token: str | None) -> list[tuple[str, str]]:
    return [] if token is None else [("authorization", f"Bearer {token}")]


def evaluated(channel: grpc.Channel, token: str | None = None) -> str:
    """Ask for nothing; give the status: INVALID_ARGUMENT where the call was let in."""
    return _status(PolicyServiceStub(channel).Evaluate, policy.EvaluateRequest(), token)


def listed(channel: grpc.Channel, token: str | None = None) -> str:
    """List the policies; give the status."""
    return _status(RepositoryServiceStub(channel).ListPolicies, repository.ListPoliciesRequest(), token)


def retired(channel: grpc.Channel, token: str | None = None) -> str:
    """Retire a version that there is not; give the status: FAILED_PRECONDITION where the call was let in."""
    return _status(RepositoryServiceStub(channel).Retire, repository.RetireRequest(policy="one", version=9), token)


def rolled_back(channel: grpc.Channel, token: str | None = None) -> str:
    """Roll back to a version that there is not; give the status: FAILED_PRECONDITION where the call was let in."""
    return _status(RepositoryServiceStub(channel).Rollback, repository.RollbackRequest(policy="one", to=9), token)


def published(channel: grpc.Channel, token: str | None = None) -> str:
    """Publish nothing; give the status: FAILED_PRECONDITION where the call was let in."""
    return _status(RepositoryServiceStub(channel).Publish, iter(()), token)


def session_opened(channel: grpc.Channel, token: str | None = None) -> str:
    """Open a session without saying anything; give the status: FAILED_PRECONDITION where the call was let in."""
    try:
        list(PolicyServiceStub(channel).Session(iter(()), metadata=tuple(bearer(token)), timeout=60))
    except grpc.RpcError as failure:
        return str(failure.code().name)
    return "OK"


def _status(method: Any, request: Any, token: str | None) -> str:
    try:
        method(request, metadata=bearer(token), timeout=60)
    except grpc.RpcError as failure:
        return str(failure.code().name)
    return "OK"
