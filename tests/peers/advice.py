"""A service as users define it: a field per feature, and the decision.

Servers that take their own messages serve it: ML-Compiler-Bridge's Python end, ``compilerinterface``, and Ray Serve.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessages

from policybridge_bench.contenders.contract import Route, Setting
from policybridge_bench.inference import model_inputs
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.processes import free_port, run_tool
from policybridge_bench.requests import write_messages
from policybridge_serdes import ElementType
from tests.peers.peer import RUNTIME, SERVERS, Peer, Start, grpc_call

_PACKAGE: Final = "policybridge_bench"
METHOD: Final = f"/{_PACKAGE}.Advice/getAdvice"

_TUNED: Final = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_USAGE_STATS_ENABLED": "0"}


class AdvicePeer(Peer):
    """Another server of the service; it serves the first payload's model, because the service has messages of one kind.

    Attributes:
        program: one of `SERVERS`; its arguments are MODEL FOLDER OTHER_PORT PORT…
        ways: of asking it; each has a port.

    """

    program: ClassVar[str]
    ways: ClassVar[Sequence[str]] = ("unary",)

    def env(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """Give more environment variables, with the port of each way."""
        return {}

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve it with stubs that the server's own environment makes."""
        name, model = next(iter(models.items()))
        python, stubs = self.environment(setting.cache) / "bin" / "python", setting.folder / "stubs"
        _compile(python, stubs, name)
        ports, (_, reply) = {way: free_port() for way in self.ways}, _messages(name)

        def ready() -> None:
            for port in ports.values():
                call = grpc_call(port, METHOD)
                ask = lambda request, call=call: reply.FromString(call(request)).decision  # noqa: E731
                self.check(ask, _requests(name), name, model)

        made = [route(setting.folder, f"grpc:127.0.0.1:{port}", name, way) for way, port in ports.items()]
        command = [python, SERVERS / self.program, model, setting.folder, free_port(), *ports.values()]
        return Start(command, ready, made, {**self.env(ports), "PYTHONPATH": f"{stubs}:{SERVERS}"})


class CompilerInterface(AdvicePeer):
    """Its own server, with the service as its users write one."""

    name = "compilerinterface"
    requirements = ("compilerinterface==0.0.2", "grpcio", "grpcio-tools", "numpy", "setuptools<81", RUNTIME)
    program = "compilerinterface_server.py"


class RayServe(AdvicePeer):
    """One replica, with the switch that Ray's guide to performance recommends; by its proxy, and without."""

    name = "rayserve"
    requirements = ("ray[serve]==2.60.0", "grpcio", "grpcio-tools", RUNTIME)
    program = "rayserve_server.py"
    ways = ("proxy", "direct")

    def env(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """Let the replica listen on its port itself: the first of a range of one."""
        port, other = ports["direct"], free_port()
        limits = {"MIN_GRPC_PORT": port, "MAX_GRPC_PORT": port + 1, "MIN_HTTP_PORT": other, "MAX_HTTP_PORT": other + 1}
        return {**_TUNED, **{f"RAY_SERVE_DIRECT_INGRESS_{name}": str(value) for name, value in limits.items()}}


def _file(name: str) -> FileDescriptorProto:
    """Give the .proto file of the service for a payload: a field per feature, and the decision."""
    file = FileDescriptorProto(name="advice.proto", package=_PACKAGE, syntax="proto3")
    request, reply = file.message_type.add(name="Request"), file.message_type.add(name="Reply")
    kinds = FieldDescriptorProto
    for number, spec in enumerate(payload(name).signature.features.specs, 1):
        field = request.field.add(name=spec.name, number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
        if spec.type is not ElementType.INT64:
            field.type, field.label = kinds.TYPE_FLOAT, kinds.LABEL_REPEATED
    reply.field.add(name="decision", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    types = {"input_type": f".{_PACKAGE}.Request", "output_type": f".{_PACKAGE}.Reply"}
    file.service.add(name="Advice").method.add(name="getAdvice", **types)
    return file


def _write_descriptors(folder: Path, name: str) -> Path:
    file = folder / "advice.binpb"
    file.write_bytes(FileDescriptorSet(file=[_file(name)]).SerializeToString())
    return file


def write_config(folder: Path, name: str, policy: str) -> Path:
    """Write the configuration with which PolicyBridge serves the service, answered by ``policy``."""
    file = folder / "config.toml"
    descriptors = _write_descriptors(folder, name)
    file.write_text(f'[mlbridge]\ndescriptors = ["{descriptors}"]\npolicy = "{policy}"\n')
    return file


def _compile(python: Path, folder: Path, name: str) -> None:
    """Make the Python stubs for a payload in ``folder``, by an environment that has grpcio-tools."""
    folder.mkdir()
    outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    descriptors = f"--descriptor_set_in={_write_descriptors(folder, name)}"
    run_tool([python, "-m", "grpc_tools.protoc", descriptors, *outputs, "advice.proto"])


def _messages(name: str) -> tuple[type[Any], type[Any]]:
    """Give the classes of the request and of the reply."""
    made = GetMessages([_file(name)], DescriptorPool())
    return made[f"{_PACKAGE}.Request"], made[f"{_PACKAGE}.Reply"]


def _requests(name: str) -> list[bytes]:
    request, _ = _messages(name)
    scalar = {spec.name: spec.type is ElementType.INT64 for spec in payload(name).signature.features.specs}
    return [
        request(**{key: one.item() if scalar[key] else one.ravel() for key, one in tensors.items()}).SerializeToString()
        for tensors in model_inputs(name)
    ]


def route(folder: Path, address: str, name: str, way: str = "unary") -> Route:
    """Give the way to a server of this service at ``address``, such as ``grpc:127.0.0.1:50051``."""
    file = folder / f"{name}.advice"
    write_messages(_requests(name), file)
    return Route(
        way,
        Load(kind="unary", address=address, method=METHOD, payload=name, file=str(file)),
        ("native", "python"),
        "onnx",
    )
