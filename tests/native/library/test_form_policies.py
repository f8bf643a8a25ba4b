"""Forms of other kinds in C++: advice of floats, and forms of several messages, decide as the server does."""

from collections.abc import Iterator

import pytest

from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from tests.conftest import RunningServer
from tests.native.clients import programs
from tests.native.conftest import Target
from tests.native.library.test_client import KINDS
from tests.server.ledger.form_policies import Decides, FormPoliciesConformance, form_rows


class TestCpp(FormPoliciesConformance):
    @pytest.fixture(params=["cpp-socket-sanitized", "cpp-grpc"])
    def decides(self, request: pytest.FixtureRequest, server: RunningServer, native: Target) -> Iterator[Decides]:
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
