"""mosec: HTTP, with a Rust front and Python workers."""

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from policybridge_bench.contenders.contract import Route, Serving, Setting
from policybridge_bench.contenders.environments import RUNTIME, environment
from policybridge_bench.contenders.peer import (
    FIXED,
    SERVERS,
    check,
    decisions,
    free_port,
    model_inputs,
    running,
    write_model,
)
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.requests import write_messages

_REQUIREMENTS: Final = ("mosec==0.9.8", "msgspec", "numpy", RUNTIME)
_WAYS: Final = ("raw", "json")


class Mosec:
    """A worker per form of the request, and no batching, which would wait."""

    def prepare(self, cache: Path) -> None:
        """Install it."""
        environment(cache, "mosec", _REQUIREMENTS)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve the first payload's model: a mosec has one."""
        name, port = next(name for name in setting.payloads if name in FIXED), free_port()
        model = write_model(setting.folder / "policies", name)
        python = environment(setting.cache, "mosec", _REQUIREMENTS) / "bin" / "python"
        command: list[object] = [
            python,
            SERVERS / "mosec_server.py",
            model,
            "--port",
            str(port),
            "--address",
            "127.0.0.1",
        ]
        options = ["--log-level", "warning", "--path", str(setting.folder / "mosec")]
        ready = lambda: _check(port, name, model)  # noqa: E731
        with running([*command, *options], setting.folder / "mosec.log", ready) as pid:
            yield Serving(pid, list(_routes(setting.folder, port, name)))


def _bodies(way: str, name: str) -> list[bytes]:
    if way == "raw":
        return [values.tobytes() for values in payload(name).observations()]
    inputs = model_inputs(name)
    return [msgspec.json.encode({key: tensor.ravel().tolist() for key, tensor in one.items()}) for one in inputs]


def _check(port: int, name: str, model: Path) -> None:
    def ask(way: str, body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", f"/{way}", body)
        answer = connection.getresponse().read()
        connection.close()
        return int.from_bytes(answer, "little") if way == "raw" else int(msgspec.json.decode(answer)["decision"])

    wanted = decisions(model, model_inputs(name))
    for way in _WAYS:
        check(lambda body, way=way: ask(way, body), _bodies(way, name), wanted, f"mosec {way}")  # type: ignore[misc]


def _routes(folder: Path, port: int, name: str) -> Iterator[Route]:
    for way in _WAYS:
        file = folder / way
        head = f"POST /{way} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
        write_messages([f"{head}{len(body)}\r\n\r\n".encode() + body for body in _bodies(way, name)], file)
        load = Load(kind="http", address=f"tcp:127.0.0.1:{port}", payload=name, file=str(file))
        yield Route(way, load, ("native",), "onnx")
