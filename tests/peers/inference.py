"""Other servers of the Open Inference Protocol over gRPC: KServe and MLServer."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import numpy as np

from policybridge.inference import inference_service_pb2 as oip
from policybridge_bench.contenders.contract import Route, Setting
from policybridge_bench.inference import INFER, infer_request, model_inputs, write_requests
from policybridge_bench.load import Load
from policybridge_bench.processes import free_port
from tests.peers.peer import RUNTIME, SERVERS, Peer, Start, grpc_call

STREAM: Final = "/inference.GRPCInferenceService/ModelStreamInfer"


class InferencePeer(Peer):
    """Another server of the protocol; its models have the payloads' names."""

    streams: ClassVar[bool] = False

    def serving(self, setting: Setting, models: Mapping[str, Path], port: int, command: Sequence[object]) -> Start:
        """Give the start by ``command`` of a server that serves ``models``, files by payload, on ``port``."""
        env = {"PATH": f"{self.environment(setting.cache)}/bin:{os.environ['PATH']}", "PYTHONPATH": str(SERVERS)}
        made = [route for name in models for route in self._routes(setting.folder, port, name)]
        return Start(command, partial(self._check_all, port, models), made, env)

    def _check_all(self, port: int, models: Mapping[str, Path]) -> None:
        call = grpc_call(port, INFER)
        for name, model in models.items():
            requests = [infer_request(name, tensors) for tensors in model_inputs(name)]
            self.check(lambda request: first_output(call(request)), requests, name, model)

    def _routes(self, folder: Path, port: int, name: str) -> Iterator[Route]:
        load = Load(
            kind="unary",
            address=f"grpc:127.0.0.1:{port}",
            method=INFER,
            payload=name,
            file=write_requests(folder, name, name),
        )
        yield Route("unary", load, ("native", "python"), "onnx")
        if self.streams:
            yield Route("stream", msgspec.structs.replace(load, kind="stream", method=STREAM), ("native",), "onnx")


class KServe(InferencePeer):
    """KServe's server: one process, without a proxy and without a queue."""

    name = "kserve"
    requirements = ("kserve==0.21.0", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, named = free_port(), [f"{name}={model}" for name, model in models.items()]
        python = self.environment(setting.cache) / "bin" / "python"
        ports = [f"--grpc_port={port}", f"--http_port={free_port()}"]
        return self.serving(setting, models, port, [python, SERVERS / "kserve_server.py", *named, *ports])


class MLServer(InferencePeer):
    """MLServer without its pool of worker processes, which would add a hop between processes."""

    name = "mlserver"
    requirements = ("mlserver==1.7.1", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve every payload's model."""
        port, folder = free_port(), setting.folder / "models"
        for name, model in models.items():
            own = {"name": name, "implementation": "mlserver_runtime.OnnxModel", "parameters": {"uri": str(model)}}
            (folder / name).mkdir(parents=True)
            (folder / name / "model-settings.json").write_text(json.dumps(own))
        ports = {"grpc_port": port, "http_port": free_port(), "metrics_port": free_port()}
        settings = {**ports, "host": "127.0.0.1", "parallel_workers": 0, "metrics_endpoint": None}
        (folder / "settings.json").write_text(json.dumps({**settings, "use_structured_logging": False, "debug": False}))
        program = self.environment(setting.cache) / "bin" / "mlserver"
        return self.serving(setting, models, port, [program, "start", folder])


def first_output(reply: bytes) -> int:
    """Give the one element of a ModelInferResponse's one output, an INT64; raw or typed."""
    response = oip.ModelInferResponse.FromString(reply)
    if response.raw_output_contents:
        return int(np.frombuffer(response.raw_output_contents[0], "<i8")[0])
    return response.outputs[0].contents.int64_contents[0]
