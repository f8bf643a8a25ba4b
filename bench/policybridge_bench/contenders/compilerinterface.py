"""ML-Compiler-Bridge's Python end, ``compilerinterface``, over gRPC."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from policybridge_bench.contenders.advice import check_advice, compile_advice, route
from policybridge_bench.contenders.contract import Setting
from policybridge_bench.contenders.environments import RUNTIME
from policybridge_bench.contenders.peer import SERVERS, Peer, Start, free_port


class CompilerInterface(Peer):
    """Its own server, with a service of ours, as its users write one."""

    name = "compilerinterface"
    requirements = ("compilerinterface==0.0.2", "grpcio", "grpcio-tools", "numpy", "setuptools<81", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve the first payload's model: its server has one service."""
        (name, model), port = next(iter(models.items())), free_port()
        python, stubs = self.environment(setting.cache) / "bin" / "python", setting.folder / "stubs"
        compile_advice(python, stubs, name)
        return Start(
            [python, SERVERS / "compilerinterface_server.py", model, str(port)],
            partial(check_advice, "compilerinterface", port, name, model),
            lambda: [route(setting.folder, f"grpc:127.0.0.1:{port}", name)],
            {"PYTHONPATH": str(stubs)},
        )
