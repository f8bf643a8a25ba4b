"""ML-Compiler-Bridge's Python end, ``compilerinterface``, over gRPC."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.advice import check_advice, compile_advice, route
from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment
from policybridge_bench.contenders.peer import FIXED, SERVERS, free_port, running, write_model

_REQUIREMENTS: Final = ("compilerinterface==0.0.2", "grpcio", "grpcio-tools", "numpy", "setuptools<81", RUNTIME)


class CompilerInterface:
    """Its own server, with a service of ours, as its users write one."""

    def prepare(self, cache: Path) -> None:
        """Install it."""
        environment(cache, "compilerinterface", _REQUIREMENTS)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve the first payload's model: its server has one service."""
        name, port = next(name for name in setting.payloads if name in FIXED), free_port()
        python = environment(setting.cache, "compilerinterface", _REQUIREMENTS) / "bin" / "python"
        model, stubs = write_model(setting.folder / "policies", name), setting.folder / "stubs"
        compile_advice(python, stubs, name)
        command = [python, SERVERS / "compilerinterface_server.py", model, str(port)]
        ready = lambda: check_advice("compilerinterface", port, name, model)  # noqa: E731
        env = {"PYTHONPATH": str(stubs)}
        with running(command, setting.folder / "compilerinterface.log", ready, env) as pid:
            yield Serving(pid, [route(setting.folder, f"grpc:127.0.0.1:{port}", name)])
