"""Forms of other kinds in Python: advice of floats, and forms of several messages, decide as the server does."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from policybridge_client.local import Evaluate
from policybridge_client.runner import open_runner
from policybridge_serdes import Signature
from tests.conftest import RunningServer
from tests.server.ledger.form_policies import (
    FLOATS,
    WIDE,
    Decides,
    assert_decides_alike,
    form_rows,
    serving_form_policies,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "policybridge" / "forms"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with TemporaryDirectory(prefix="pb-") as name, serving_form_policies(Path(name)) as running:
        yield running


@pytest.fixture(params=["socket", "grpc"])
def decides(request: pytest.FixtureRequest, server: RunningServer) -> Decides:
    address = getattr(server, request.param)

    def decide(signature: Signature, place: Evaluate) -> tuple[str, list[bytes]]:
        features, advice, made = signature.features.specs, signature.advice, []
        with open_runner(address, policy=advice.name, features=features, advice=advice, evaluate=place) as runner:
            for row in form_rows(60):
                runner["x"] = row["x"][0]
                made.append(np.asarray(runner.evaluate()).tobytes())
            runner.report("ok")
            return runner.session_id, made

    return decide


@pytest.mark.parametrize("policy", FLOATS)
def test_an_advice_of_floats_has_the_bits_of_the_server(server: RunningServer, decides: Decides, policy: str) -> None:
    assert_decides_alike(server, decides, FLOATS[policy])


def test_a_form_of_several_messages_comes_whole_and_is_kept(
    server: RunningServer, decides: Decides, cache: Path
) -> None:
    assert_decides_alike(server, decides, WIDE)
    (file,) = cache.iterdir()
    kept = file.stat()
    assert kept.st_size > 2 << 20
    assert_decides_alike(server, decides, WIDE)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
