"""What the other servers have in common: a free port, a first answer to wait for, and the model that they serve."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from policybridge_bench.payloads import payload
from policybridge_bench.policies import NAMED, policy_name, write_policies
from policybridge_bench.processes import end
from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Values

SERVERS: Final = Path(__file__).parent / "servers"
"""Programs that run in the other servers' environments."""

FIXED: Final = ("inliner", "vector", "64KiB", "1MiB")
"""Payloads that every server has a form for."""

_TIMEOUT: Final = 120.0
_PAUSE: Final = 0.2


def free_port() -> int:
    """Give a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_model(folder: Path, name: str) -> Path:
    """Write the model for a payload, with an input per feature, and give its path."""
    backend = NAMED if name == "inliner" else "onnx"
    write_policies(folder, [name], [backend])
    return folder / policy_name(name, backend) / "1" / "model.onnx"


def model_inputs(name: str) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Give a payload's observations as a model server wants them: tensors by name, each with a batch of one."""
    asking = payload(name)
    return [
        {spec.name: _batch(values, spec.name) for spec in asking.signature.features.specs}
        for values in asking.observations()
    ]


def _batch(values: Values, name: str) -> np.ndarray[Any, Any]:
    column: np.ndarray[Any, Any] = values[name]
    return column.reshape(1, -1)


def decisions(model: Path, inputs: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> list[int]:
    """Give what the model decides, run here."""
    import onnxruntime  # noqa: PLC0415 - only where another server is measured

    session = onnxruntime.InferenceSession(str(model))
    return [int(session.run(None, dict(one))[0].item()) for one in inputs]


def grpc_call(port: int, method: str) -> Callable[[bytes], bytes]:
    """Give a unary call of raw bytes."""
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(method, None, None)
    return lambda request: bytes(call(request, timeout=10, wait_for_ready=True))


def check(ask: Callable[[bytes], int], requests: Sequence[bytes], wanted: Sequence[int], who: str) -> None:
    """Make sure that somebody answers as the model does.

    Raises:
        PolicyFailedError: it answers otherwise.

    """
    for number, request in enumerate(requests[:16]):
        got = ask(request)
        if got != wanted[number]:
            raise PolicyFailedError(f"{who} answers {got} to observation {number}; the model decides {wanted[number]}")


@contextlib.contextmanager
def running(
    command: Sequence[object], log: Path, ready: Callable[[], object], env: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a server until the body ends, which begins once ``ready`` raises nothing; give its process id.

    Raises:
        PolicyFailedError: it ended, or was not ready in time; the message has the end of its log.

    """
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        words = [str(word) for word in command]
        process = subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, **(env or {})})
        stack.callback(end, process)
        _wait(process, ready, log)
        yield process.pid


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], object], log: Path) -> None:
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            ready()
        except PolicyFailedError:
            raise
        except Exception as error:
            if process.poll() is not None or time.monotonic() > until:
                said = log.read_text(errors="replace")[-3000:]
                raise PolicyFailedError(f"{process.args!r} is not ready: {error}\n{said}") from error
            time.sleep(_PAUSE)
        else:
            return
