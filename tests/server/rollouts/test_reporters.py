"""Who decides a roll-out: no token that may only evaluate does so alone."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from policybridge.v1.policy_service_pb2 import ReportOutcomeRequest
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_client import Credentials, connect
from policybridge_client.contract import Connection
from policybridge_client.policies import Conditions, RepositoryClient
from policybridge_core.errors import PermissionDeniedError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from tests.certificates import token, write_tokens
from tests.server.publishing.policies import SIGNATURE, ask, wait_for, write_adder, write_policy
from tests.serving import started

SCOPES = {
    "ci": ["evaluate"],
    "nightly": ["evaluate"],
    "lab": ["evaluate", "report"],
    "trainer": ["publish", "read"],
}


class Farm:
    """A server with tokens, and its clients by their tokens' names."""

    def __init__(self, address: str, folder: Path, stack: ExitStack) -> None:
        self.address, self._folder, self._stack = address, folder, stack
        self.repository = RepositoryClient(address, timeout=120, credentials=self._credentials("trainer"))
        stack.callback(self.repository.close)
        self._clients: dict[str, Connection] = {}

    def _credentials(self, name: str) -> Credentials:
        file = self._folder / name
        file.write_text(token(name))
        return Credentials(token_file=file)

    def compile(self, name: str, file: str, text: float) -> str:
        """Compile a file; give the session's id."""
        if name not in self._clients:
            self._clients[name] = connect(self.address, timeout=120, credentials=self._credentials(name))
            self._stack.callback(self._clients[name].close)
        options = SessionOptions(context=file)
        with self._clients[name].open(PolicyReference("adder", alias="stable"), SIGNATURE, options) as session:
            ask(session)
            session.report(Outcome({"text": text}, "ok"))
            return session.id

    def compile_all(self, name: str, new: float) -> None:
        """Compile 24 files before a roll-out of the version 2 to all files and after it began."""
        for number in range(24):
            self.compile(name, f"{name}{number}.c", 100)
        self.roll_out()
        for number in range(24):
            self.compile(name, f"{name}{number}.c", new)

    def roll_out(self) -> None:
        conditions = Conditions(promote_if=["text < -0.1%"])
        self.repository.roll_out(PolicyReference("adder", 2), 1.0, alias="stable", conditions=conditions)

    def state(self) -> tuple[str, str]:
        rollout = self.repository.show("adder").rollout
        assert rollout is not None
        return rollout.state, rollout.progress


@contextmanager
def farming(folder: Path, *arguments: object) -> Iterator[Farm]:
    adder = write_policy(folder / "policies")
    write_adder(adder / "2", 200)
    (adder / "aliases.toml").write_text("stable = 1\n")
    tokens = write_tokens(folder / "tokens.toml", SCOPES)
    serve = ("--repository", folder / "policies", "--allow-publish", "--ledger", folder / "runs.db", "--tokens", tokens)
    with (
        started("--grpc", "127.0.0.1:0", *serve, *arguments) as (_, addresses),
        ExitStack() as stack,
    ):
        yield Farm(addresses[0], folder, stack)


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_a_token_that_may_only_evaluate_promotes_nothing_by_invented_files_and_outcomes(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    with farming(tmp_path, *workers) as farm:
        farm.compile_all("ci", 50)
        told = "0 of 20 files, at this share 20 builds (24 with the token ci, whose word alone decides nothing)"
        wait_for(lambda: farm.state()[1].startswith(told))
        assert farm.state()[0] == "running"


def test_a_token_with_the_scope_report_decides_and_another_one_cannot_turn_it(tmp_path: Path) -> None:
    with farming(tmp_path) as farm:
        for number in range(24):
            # It claims enormous savings, on files of its own and on those of others.
            farm.compile("ci", f"lab{number}.c", 1e12)
        farm.compile_all("lab", 101)
        wait_for(lambda: farm.state()[0] == "withdrawn")


def test_two_tokens_that_agree_decide_together(tmp_path: Path) -> None:
    with farming(tmp_path) as farm:
        farm.compile_all("ci", 50)
        for number in range(24):
            farm.compile("nightly", f"ci{number}.c", 50)
        assert farm.state()[0] == "running"
        farm.repository.end_rollout("adder", promote=False)
        for name in ("ci", "nightly"):
            for number in range(24):
                farm.compile(name, f"{name}{number}.c", 100)
        farm.roll_out()
        for name in ("ci", "nightly"):
            for number in range(24):
                farm.compile(name, f"{name}{number}.c", 50)
        wait_for(lambda: farm.state()[0] == "promoted")


def test_outcomes_need_the_scope_report_where_the_operator_says_so(tmp_path: Path) -> None:
    with farming(tmp_path, "--report-scope") as farm:
        with pytest.raises(PermissionDeniedError, match=r"need the scope report here .*, which the token ci lacks"):
            farm.compile("ci", "a.c", 100)
        request = ReportOutcomeRequest(session_id=farm.compile("lab", "a.c", 100))
        request.outcome.values["text"] = 1.0
        with grpc.insecure_channel(farm.address.removeprefix("grpc:")) as channel:
            report = PolicyServiceStub(channel).ReportOutcome
            report(request, metadata=(("authorization", f"Bearer {token('lab')}"),), timeout=60)
            with pytest.raises(grpc.RpcError) as refused:
                report(request, metadata=(("authorization", f"Bearer {token('ci')}"),), timeout=60)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
