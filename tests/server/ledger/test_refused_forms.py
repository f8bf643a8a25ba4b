"""Forms that Python refuses: by default the server is asked, and the user hears nothing."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_client.local import Evaluate
from policybridge_client.runner import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import tensor
from tests.client.altering import ALTERATIONS, altering
from tests.forms.parts import forms
from tests.server.ledger.asking import ask, await_forms, open_network, rows
from tests.server.ledger.conftest import Recording


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder for a socket and a cache."""
    with TemporaryDirectory(prefix="pb-") as name:
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        yield Path(name)


@pytest.fixture(params=["socket", "grpc"])
def scheme(request: pytest.FixtureRequest, recording: Recording) -> str:
    await_forms(recording.server.socket)
    scheme: str = request.param
    return scheme


def decided(address: str, evaluate: Evaluate) -> tuple[str, bytes]:
    """Give the session, and its advices."""
    features, advice = SIGNATURE.features.specs, SIGNATURE.advice
    with open_runner(address, policy="network", features=features, advice=advice, evaluate=evaluate) as runner:
        made = b""
        for row in rows(30):
            for spec in features:
                runner[spec.name] = tensor(spec, row)
            made += np.asarray(runner.evaluate()).tobytes()
        runner.report("ok")
        return runner.session_id, made


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_form_that_is_refused_leaves_the_decisions_to_the_server(
    recording: Recording, policies: Path, folder: Path, scheme: str, alteration: str
) -> None:
    with open_network(recording.server.socket) as session:
        expected = ask(session, rows(30))
    data = [each.data for each in forms("network", policies).values()]
    with altering(recording.server, data, ALTERATIONS[alteration], folder) as addresses:
        identity, made = decided(addresses[scheme], "auto")
    assert made == expected
    with recording.reader() as reader:
        found = reader.session(identity)
    assert (found.labels, found.decisions, found.lost) == ({}, 30, 0)


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_form_that_is_refused_is_an_error_where_the_client_must_decide(
    recording: Recording, policies: Path, folder: Path, scheme: str, alteration: str
) -> None:
    data = [each.data for each in forms("network", policies).values()]
    with (
        altering(recording.server, data, ALTERATIONS[alteration], folder) as addresses,
        pytest.raises(PolicyBridgeError, match="form"),
    ):
        decided(addresses[scheme], "here")
