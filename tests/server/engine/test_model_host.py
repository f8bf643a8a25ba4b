"""A model on its way from its worker back to the loop thread."""

import asyncio
from pathlib import Path

from policybridge_server.backends.contract import Model
from policybridge_server.counters import VersionCounters
from policybridge_server.engine.decision import Result
from policybridge_server.engine.failures import Failures
from policybridge_server.engine.model_host import ModelHost, Rules
from tests.onnx_models import write_onnx
from tests.server.backends.backends import load
from tests.server.publishing.policies import adder, wait_for


def test_all_batches_that_a_worker_has_evaluated_are_answered_when_the_model_returns_before_some(
    tmp_path: Path,
) -> None:
    write_onnx(tmp_path, "adder", adder(1))
    model, answered, runs = load(tmp_path, "adder"), list[int](), 300

    def nothing(_: Model) -> list[Result]:
        return []

    async def put_and_wait() -> None:
        rules = Rules("adder@1", inline=False, allowed=None, load_allowed=60, movable=True, reload=lambda: model)
        loop, counters = asyncio.get_running_loop(), VersionCounters("adder", "1")
        host = ModelHost(model, rules, loop, Failures("adder@1"), counters)
        worker = host.worker
        assert worker is not None
        for number in range(runs):
            host.run(worker, nothing, 1, 1, lambda *_, number=number: answered.append(number))
        # The loop is kept from all their results.
        wait_for(lambda: worker.idle)
        while len(answered) < runs and host.worker is not None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert host.worker is None
        host.close()

    asyncio.run(put_and_wait())
    assert answered == list(range(runs))
