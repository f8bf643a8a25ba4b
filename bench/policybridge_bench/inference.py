"""ModelInfer beside a native unary Evaluate: the same observations, the same server, one call after the other.

    python -m policybridge_bench.inference [--rounds 5] [--seconds 1] [--json FILE]

Each round measures every case once; ratios are taken within a round, and their medians printed. A case asks one policy
in one form: `packed` is one float tensor of 38 elements, `named` is 38 int64 tensors.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import grpc
import numpy as np
import onnx

from policybridge.inference import inference_service_pb2 as oip
from policybridge.inference.inference_service_pb2_grpc import GRPCInferenceServiceStub
from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge_bench.network import FEATURES, SIGNATURE, make_network, observations, write_network
from policybridge_bench.session import process
from policybridge_serdes import ElementType, Layout, TensorSpec, pack
from policybridge_serdes.protobuf import ProtobufSerDes

BOUND = 1.5
"""What is promised: ModelInfer takes at most so many times as long as Evaluate."""

_COUNT = 256
_WARM_UP = 200
_PACKED = Layout((TensorSpec("observation", ElementType.FLOAT, (38,)),))

Case = list[Callable[[], object]]
"""Calls that are made in turn."""


def evaluate_calls(stub: PolicyServiceStub, policy: str, layout: Layout) -> Case:
    """Make the native calls."""
    reference, serdes = pb.PolicyReference(name=policy), ProtobufSerDes()
    calls: Case = []
    for tensors in _tensors(layout):
        described = tensor_pb2.DescribedTensors.FromString(serdes.encode(pack(layout, tensors), layout))
        request = pb.EvaluateRequest(policy=reference, tensors=described)
        calls.append(lambda request=request: stub.Evaluate(request))  # type: ignore[misc]
    return calls


def infer_calls(stub: GRPCInferenceServiceStub, policy: str, layout: Layout) -> Case:
    """Make the calls of the Open Inference Protocol, with raw contents."""
    calls: Case = []
    for tensors in _tensors(layout):
        request = oip.ModelInferRequest(model_name=policy)
        for spec in layout.specs:
            datatype = "FP32" if spec.type is ElementType.FLOAT else "INT64"
            request.inputs.add(name=spec.name, datatype=datatype, shape=(1, *spec.shape))
            request.raw_input_contents.append(tensors[spec.name].tobytes())
        calls.append(lambda request=request: stub.ModelInfer(request))  # type: ignore[misc]
    return calls


def _tensors(layout: Layout) -> list[dict[str, np.ndarray]]:
    rows = observations(_COUNT)
    if layout is _PACKED:
        return [{"observation": row.astype(np.float32)} for row in rows]
    return [{name: row[index : index + 1] for index, name in enumerate(FEATURES)} for row in rows]


def p50(case: Case, seconds: float) -> float:
    """Make the calls for ``seconds``; give the median latency in µs."""
    for number in range(_WARM_UP):
        case[number % _COUNT]()
    latencies: list[float] = []
    clock = time.perf_counter
    end = clock() + seconds
    while (started := clock()) < end:
        case[len(latencies) % _COUNT]()
        latencies.append((clock() - started) * 1e6)
    return median(latencies)


def _write_policies(repository: Path) -> None:
    write_network(repository, "named", packed=False)
    folder = repository / "packed" / "1"
    folder.mkdir(parents=True)
    onnx.save(make_network(packed=True), folder / "model.onnx")
    (repository / "packed" / "policy.toml").write_text('backend = "onnx"\n')


def rounds(count: int, seconds: float) -> list[dict[str, float]]:
    """Measure; give each round's p50s in µs."""
    with tempfile.TemporaryDirectory(prefix="pb-") as folder:
        _write_policies(Path(folder))
        serve = ("policybridge_client.cli", "serve", "--repository", folder, "--grpc", "127.0.0.1:0")
        with process(*serve) as (address,), grpc.insecure_channel(address.removeprefix("grpc:")) as channel:
            native, inference = PolicyServiceStub(channel), GRPCInferenceServiceStub(channel)
            cases = {
                "Evaluate, packed": evaluate_calls(native, "packed", _PACKED),
                "ModelInfer, packed": infer_calls(inference, "packed", _PACKED),
                "Evaluate, named": evaluate_calls(native, "named", SIGNATURE.features),
                "ModelInfer, named": infer_calls(inference, "named", SIGNATURE.features),
            }
            return [{name: p50(case, seconds) for name, case in cases.items()} for _ in range(count)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case in each round")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    measured = rounds(arguments.rounds, arguments.seconds)
    for name in measured[0]:
        print(f"{name:<24} p50 {median(each[name] for each in measured):7.1f} µs")
    for form in ("packed", "named"):
        own = sorted(each[f"ModelInfer, {form}"] / each[f"Evaluate, {form}"] for each in measured)
        name = f"ModelInfer / Evaluate, {form} (at most {BOUND})"
        print(f"{name:<50} {median(own):5.2f}   ({own[0]:.2f} to {own[-1]:.2f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
