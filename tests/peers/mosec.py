"""mosec: HTTP, with a Rust front and Python workers."""

import http.client
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from policybridge_bench.contenders.contract import Route, Setting
from policybridge_bench.inference import model_inputs
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.processes import free_port
from policybridge_bench.requests import write_messages
from tests.peers.peer import RUNTIME, SERVERS, Peer, Start

_WAYS: Final = ("raw", "json")


class Mosec(Peer):
    """A worker for each form of the request; no batching, because batching waits."""

    name = "mosec"
    requirements = ("mosec==0.9.8", "msgspec", "numpy", RUNTIME)

    def start(self, setting: Setting, models: Mapping[str, Path]) -> Start:
        """Serve the first payload's model: a mosec has one."""
        (name, model), port = next(iter(models.items())), free_port()
        python = self.environment(setting.cache) / "bin" / "python"
        options = ["--port", str(port), "--address", "127.0.0.1", "--log-level", "warning"]
        options += ["--path", str(setting.folder / "mosec")]
        command = [python, SERVERS / "mosec_server.py", model, *options]
        return Start(command, partial(_check, self, port, name, model), list(_routes(setting.folder, port, name)))


def _bodies(way: str, name: str) -> list[bytes]:
    if way == "raw":
        return [values.tobytes() for values in payload(name).observations()]
    inputs = model_inputs(name)
    return [msgspec.json.encode({key: tensor.ravel().tolist() for key, tensor in one.items()}) for one in inputs]


def _check(peer: Peer, port: int, name: str, model: Path) -> None:
    def ask(way: str, body: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", f"/{way}", body)
        answer = connection.getresponse().read()
        connection.close()
        return int.from_bytes(answer, "little") if way == "raw" else int(msgspec.json.decode(answer)["decision"])

    for way in _WAYS:
        peer.check(partial(ask, way), _bodies(way, name), name, model)


def _routes(folder: Path, port: int, name: str) -> Iterator[Route]:
    for way in _WAYS:
        file = folder / way
        head = f"POST /{way} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
        write_messages([f"{head}{len(body)}\r\n\r\n".encode() + body for body in _bodies(way, name)], file)
        load = Load(kind="http", address=f"tcp:127.0.0.1:{port}", payload=name, file=str(file))
        yield Route(way, load, ("native",), "onnx")
