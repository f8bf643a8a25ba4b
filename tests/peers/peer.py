"""The common part of other servers: environment, start, readiness check and model."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import grpc

from policybridge_bench.contenders.contract import Contender, Route, Serving, Setting
from policybridge_bench.inference import model_inputs
from policybridge_bench.payloads import FIXED
from policybridge_bench.policies import NAMED, policy_name, write_policies
from policybridge_bench.processes import run_tool, running, tail
from policybridge_core.errors import PolicyFailedError

RUNTIME: Final = "onnxruntime==1.31.1"
"""All servers have the same ONNX Runtime, so that the servers make the difference."""

SERVERS: Final = Path(__file__).parent / "servers"
"""Programs that run in the other servers' environments."""

_TIMEOUT: Final = 120.0
_PAUSE: Final = 0.2


def environment(cache: Path, name: str, requirements: Sequence[str], *options: str) -> Path:
    """Give the folder of the environment ``name``, where pip has installed the ``requirements``.

    Raises:
        PreconditionError: they cannot be installed; the message has the end of pip's output.

    """
    folder = (cache / "envs" / name).absolute()
    stamp, wanted = folder / "installed.txt", "\n".join([*requirements, *options])
    if not stamp.exists() or stamp.read_text() != wanted:
        run_tool([sys.executable, "-m", "venv", "--clear", folder])
        run_tool([folder / "bin" / "pip", "install", "--quiet", *options, *requirements])
        stamp.write_text(wanted)
    return folder


def site_packages(folder: Path) -> Path:
    """Give the folder of an environment's packages."""
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    return packages


def write_model(folder: Path, name: str) -> Path:
    """Write the model for a payload, with an input per feature, and give its path."""
    backend = NAMED if name == "inliner" else "onnx"
    write_policies(folder, [name], [backend])
    return folder / policy_name(name, backend) / "1" / "model.onnx"


def grpc_call(port: int, method: str) -> Callable[[bytes], bytes]:
    """Give a unary call of raw bytes."""
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(method, None, None)
    return lambda request: bytes(call(request, timeout=10, wait_for_ready=True))


@dataclass(frozen=True)
class Start:
    """How a peer is started: its command, a function that raises while it is not ready, its routes and environment."""

    command: Sequence[object]
    ready: Callable[[], object]
    routes: Sequence[Route]
    env: Mapping[str, str] = field(default_factory=dict)


class Peer(Contender):
    """Another server, in an environment of its own that pip makes.

    Attributes:
        name: of the environment.
        requirements: what pip installs there.

    """

    name: ClassVar[str]
    requirements: ClassVar[Sequence[str]]

    def prepare(self, cache: Path) -> None:
        """Install it."""
        self.environment(cache)

    def environment(self, cache: Path) -> Path:
        """Give the folder of its environment."""
        return environment(cache, self.name, self.requirements)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Give the start of the server for ``models``, files by payload."""
        raise NotImplementedError

    def check(self, ask: Callable[[bytes], int], requests: Sequence[bytes], name: str, model: Path) -> None:
        """Compare its answers to 16 requests of the payload ``name`` with the decisions of the model in this process.

        Raises:
            PolicyFailedError: an answer differs.

        """
        import onnxruntime  # noqa: PLC0415 - only where another server is measured

        session = onnxruntime.InferenceSession(str(model))
        for number, (request, inputs) in enumerate(zip(requests[:16], model_inputs(name), strict=False)):
            got, wanted = ask(request), session.run(None, inputs)[0].item()
            if got != wanted:
                raise PolicyFailedError(
                    f"{self.name} answers {got} to observation {number}; the model decides {wanted}"
                )

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve the payloads that every server can take.

        Raises:
            PolicyFailedError: it ended, or was not ready in time; the message has the end of its log.

        """
        models = {name: write_model(setting.folder / "policies", name) for name in setting.payloads if name in FIXED}
        start, log = self.start(setting, models), setting.folder / f"{self.name}.log"
        with running(start.command, log, env=start.env) as process:
            _wait(process, start.ready, log)
            yield Serving(process.pid, start.routes)


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], object], log: Path) -> None:
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            ready()
            return
        except PolicyFailedError:
            raise
        except Exception as error:
            if process.poll() is not None or time.monotonic() > until:
                raise PolicyFailedError(f"{process.args!r} is not ready: {error}\n{tail(log)}") from error
            time.sleep(_PAUSE)
