"""What the ledger's tests ask: one network, and Python policies."""

import time
from pathlib import Path

import numpy as np

from policybridge_bench.network import SIGNATURE, observations, write_network
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, FormSession
from policybridge_client.record import Record
from policybridge_client.spool import Spool
from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions, Signature, Values
from tests.repositories import answering, write_python

_SCORES = 'advice = {name = "scores", type = "float", shape = [1, 3]}\n[head]\nadvice = "choice"\n'


def write_policies(repository: Path) -> None:
    write_network(repository, "network")
    write_network(repository, "network", version=2)
    write_network(repository, "choosing")
    with (repository / "choosing" / "policy.toml").open("a") as file:
        file.write('[head]\nscores = "choice"\nchoices = 2\nadvice = "inlining_decision"\n')
    write_python(repository, "first", answering("[0]"))
    write_python(repository, "reverse", answering('observation["names"][::-1]'))
    write_python(repository, "scores", answering("[[1.0, 3.0, 2.0]]"), _SCORES)
    write_python(repository, "sum", answering('observation["x"].sum()'))


def rows(count: int, seed: int = 1) -> list[Values]:
    """Give observations for the network."""
    return [np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()) for row in observations(count, seed)]


def open_network(address: str, options: SessionOptions | None = None, policy: str = "network") -> ClientSession:
    return connect(address).open(PolicyReference.parse(policy), SIGNATURE, options or SessionOptions())


def await_forms(address: str, policy: str = "network") -> None:
    """Wait until a session that wants the policy's forms gets them: on a busy machine they take long."""
    await_forms_of(address, policy, SIGNATURE)


def await_forms_of(address: str, policy: str, signature: Signature) -> None:
    """Wait for them by a session of this signature."""
    end = time.monotonic() + 120
    while True:
        options = SessionOptions(evaluates=True)
        with connect(address).open(PolicyReference.parse(policy), signature, options) as session:
            if isinstance(session, FormSession) and session.forms:
                return
        assert time.monotonic() < end, f"{policy} has no forms"


def ask(session: ClientSession, observations: list[Values]) -> bytes:
    """Ask for all, and give the advices' bytes."""
    return b"".join(session.evaluate(row).tobytes() for row in observations)


def keep_refused(address: str) -> None:
    """Put a record into this user's spool that the server at ``address`` refuses: of a version that there is not."""
    version = PolicyVersion("inliner", 99, "sha256:0")
    assert Spool().keep(address, Record("0" * 32, version, PolicyReference("inliner"), SessionOptions()))
