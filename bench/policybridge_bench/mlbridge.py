"""A foreign client's getAdvice beside our own unary Evaluate: same server, same network, same 38 features.

    python -m policybridge_bench.mlbridge [--rounds 5] [--calls 2000] [--json FILE]

One Python client asks both in turn, by bytes made beforehand over one channel each, so that only the server differs.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median

import grpc
import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge_bench.network import FEATURES, SIGNATURE, observations, write_network
from policybridge_bench.session import process
from policybridge_serdes import load_serdes

_BOUND = 1.3
_WARM_UP = 500

Ask = Callable[[], bytes]


def foreign_file() -> FileDescriptorProto:
    """Give the .proto of a user: 38 fields in, one out."""
    file = FileDescriptorProto(name="inlining.proto", package="inlining", syntax="proto3")
    request, reply = file.message_type.add(name="Request"), file.message_type.add(name="Reply")
    fields = FieldDescriptorProto
    for number, name in enumerate(FEATURES, 1):
        request.field.add(name=name, number=number, type=fields.TYPE_INT64, label=fields.LABEL_OPTIONAL)
    reply.field.add(name="advice", number=1, type=fields.TYPE_INT64, label=fields.LABEL_OPTIONAL)
    service = file.service.add(name="Inlining")
    service.method.add(name="getAdvice", input_type=".inlining.Request", output_type=".inlining.Reply")
    return file


@contextmanager
def server() -> Iterator[str]:
    """Serve the network to both; give the address."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pb-")))
        write_network(folder / "policies", "packed")
        (folder / "inlining.binpb").write_bytes(FileDescriptorSet(file=[foreign_file()]).SerializeToString())
        mlbridge = f'[mlbridge]\ndescriptors = ["{folder}/inlining.binpb"]\npolicy = "packed"\n'
        (folder / "config.toml").write_text(f'repository = ["{folder}/policies"]\ngrpc = ["127.0.0.1:0"]\n{mlbridge}')
        serve = process("policybridge_client.cli", "serve", "--config", str(folder / "config.toml"))
        (address,) = stack.enter_context(serve)
        yield address.removeprefix("grpc:")


def foreign(address: str) -> Ask:
    """Ask as ML-Compiler-Bridge does."""
    pool = DescriptorPool()
    pool.Add(foreign_file())
    request = GetMessageClass(pool.FindMessageTypeByName("inlining.Request"))
    asked = [request(**dict(zip(FEATURES, row.tolist(), strict=True))).SerializeToString() for row in observations(256)]
    return _asking(address, "/inlining.Inlining/getAdvice", asked)


def native(address: str, serdes: str) -> Ask:
    """Ask by our own Evaluate."""
    encoder = load_serdes(serdes)
    asked = []
    for row in observations(256):
        data = encoder.encode(np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()), SIGNATURE.features)
        encoded = tensor_pb2.EncodedTensors(serdes=serdes, data=data)
        request = pb.EvaluateRequest(policy=pb.PolicyReference(name="packed"), encoded=encoded)
        asked.append(request.SerializeToString())
    return _asking(address, "/policybridge.v1.PolicyService/Evaluate", asked)


def _asking(address: str, path: str, asked: list[bytes]) -> Ask:
    call = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]).unary_unary(path, None, None)
    following = cycle(asked)

    def ask() -> bytes:
        reply: bytes = call(next(following), timeout=30)
        return reply

    return ask


def one_round(cases: dict[str, Ask], calls: int) -> dict[str, float]:
    """Give the p50 of each case in µs; their calls take turns."""
    latencies: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(calls):
        for name, ask in cases.items():
            started = time.perf_counter()
            ask()
            latencies[name].append((time.perf_counter() - started) * 1e6)
    return {name: median(own) for name, own in latencies.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000, help="of each case in each round")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    with server() as address:
        cases = {
            "getAdvice": foreign(address),
            "Evaluate, bitstream": native(address, "bitstream"),
            "Evaluate, protobuf": native(address, "protobuf"),
        }
        one_round(cases, _WARM_UP)
        rounds = [one_round(cases, arguments.calls) for _ in range(arguments.rounds)]
    _report(rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rounds": rounds}, indent=1))


def _report(rounds: list[dict[str, float]]) -> None:
    for name in rounds[0]:
        print(f"{name:<24} p50 {median(each[name] for each in rounds):7.1f} µs")
    for name in list(rounds[0])[1:]:
        own = sorted(each["getAdvice"] / each[name] for each in rounds)
        print(f"getAdvice / {name} (at most {_BOUND}): {median(own):.2f}   ({own[0]:.2f} to {own[-1]:.2f})")


if __name__ == "__main__":
    main()
