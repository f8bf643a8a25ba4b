"""Calls of foreign clients beside our own Evaluate: the same server, network and observations."""

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from policybridge_bench.bounds import Bound, within
from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.own import PolicyBridge, policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.policies import NAMED, policy_name
from policybridge_bench.ratios import Baseline, find, ratio
from policybridge_bench.results import Measured
from tests.peers.advice import route, write_config

_ADVICE = "grpc-advice"
_INFER_LIMIT = 1.5
"""Bound on the time of ModelInfer, as a multiple of Evaluate's."""
_ADVICE_LIMIT = 1.3
"""The same of getAdvice."""


_PAYLOAD = "inliner"
"""The payload that the service of `advice` takes."""


@dataclasses.dataclass(frozen=True)
class AdviceServer(PolicyBridge):
    """PolicyBridge with the service of `advice` beside its own, as the way ``grpc-advice``."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve on every transport."""
        config = write_config(setting.folder, _PAYLOAD, policy_name(_PAYLOAD, "onnx"))
        configured = dataclasses.replace(self, options=[*self.options, "--config", str(config)])
        with PolicyBridge.serve(configured, setting) as serving:
            address = next(each.load.address for each in serving.routes if each.way == "grpc-unary")
            yield Serving(serving.pid, [*serving.routes, route(setting.folder, address, _PAYLOAD, _ADVICE)])


def inference(arguments: argparse.Namespace) -> int:
    """Measure ModelInfer with one packed tensor (the payload vector), and with 38 named inputs on each backend."""
    fill(
        arguments,
        contenders="policybridge/grpc-tensors,policybridge/grpc-infer",
        serdes="protobuf",
        backends=f"onnx,{NAMED}",
        payloads="vector,inliner",
        clients="1",
        baseline="policybridge/grpc-tensors",
    )
    run = measure(arguments)
    bounds = within(run.cases, Baseline("policybridge", "grpc-tensors"), _INFER_LIMIT, way="grpc-infer")
    return finish(run, arguments, bounds=bounds)


def mlbridge(arguments: argparse.Namespace) -> int:
    """Measure getAdvice, with 38 features; all calls send prepared bytes, so that only the server differs."""
    fill(
        arguments,
        ways=f"grpc-unary,{_ADVICE}",
        serdes="bitstream,protobuf",
        clients="1",
        baseline=f"policybridge/{_ADVICE}",
    )
    run = measure(arguments, {"policybridge": AdviceServer(**vars(policybridge(arguments)))})
    return finish(run, arguments, bounds=_advice_bounds(run.cases))


def _advice_bounds(cases: Sequence[Measured]) -> Iterator[Bound]:
    for evaluate in find(cases, way="grpc-unary"):
        for advice in find(cases, way=_ADVICE, generator=evaluate.case.generator, clients=evaluate.case.clients):
            text = f"getAdvice / Evaluate, {evaluate.case.serdes}, {evaluate.case.clients} clients, p50"
            yield Bound(text, ratio(advice, evaluate, "p50"), _ADVICE_LIMIT, at_least=False)
