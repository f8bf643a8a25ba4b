"""Forms of other kinds in Python: advice of floats, and forms of several messages, decide as the server does."""

import numpy as np
import pytest

from policybridge_client.local import Evaluate
from policybridge_client.runner import open_runner
from policybridge_serdes import Signature
from tests.conftest import RunningServer
from tests.server.ledger.form_policies import Decides, FormPoliciesConformance, form_rows


class TestPython(FormPoliciesConformance):
    @pytest.fixture(params=["socket", "grpc"])
    def decides(self, request: pytest.FixtureRequest, server: RunningServer) -> Decides:
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
