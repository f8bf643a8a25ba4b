"""KServe's Python server, over gRPC."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_bench.contenders.contract import Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment
from policybridge_bench.contenders.inference import check_models, routes
from policybridge_bench.contenders.peer import FIXED, SERVERS, free_port, running, write_model

_REQUIREMENTS: Final = ("kserve==0.21.0", RUNTIME)


class KServe:
    """One process, so that no proxy and no queue is between."""

    def prepare(self, cache: Path) -> None:
        """Install it."""
        environment(cache, "kserve", _REQUIREMENTS)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve every payload's model."""
        port = free_port()
        models = {n: write_model(setting.folder / "policies", n) for n in setting.payloads if n in FIXED}
        python = environment(setting.cache, "kserve", _REQUIREMENTS) / "bin" / "python"
        named = [f"{name}={model}" for name, model in models.items()]
        ports = [f"--grpc_port={port}", f"--http_port={free_port()}"]
        command = [python, SERVERS / "kserve_server.py", *named, *ports]
        with running(command, setting.folder / "kserve.log", lambda: check_models("KServe", port, models)) as pid:
            yield Serving(pid, list(routes(setting.folder, port, list(models), streams=False)))
