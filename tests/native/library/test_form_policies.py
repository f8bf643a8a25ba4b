"""Forms of other kinds in C++: advice of floats, and forms of several messages, decide as the server does."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from tests.conftest import RunningServer
from tests.native.clients import programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS
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


@pytest.fixture(params=["cpp-socket-sanitized", "cpp-grpc"])
def decides(request: pytest.FixtureRequest, server: RunningServer, native: Target) -> Iterator[Decides]:
    kind = KINDS[request.param]
    with programs(kind.program(native)) as connect:
        connection = connect(kind.address(server))

        def decide(signature: Signature, place: str) -> tuple[str, list[bytes]]:
            policy = PolicyReference(signature.advice.name)
            session = connection.open(policy, signature, SessionOptions(), f"place {place}")
            made = [session.evaluate(row).tobytes() for row in form_rows(60)]
            session.report(Outcome({}, "ok"))
            return session.id, made

        yield decide


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
