"""The LLVM plugins in stock compilers, the modules that are compiled, and the policies that decide."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from tests.conftest import RunningServer
from tests.native.conftest import Target, build_grpc, missing
from tests.repositories import answering, dying, sleeping, write_python

_Output = TypeVar("_Output", bytes, str)

ECHO = 'observation["inlining_default"]'

_PASSES = """
class Policy:
    ORDER = {order}

    def evaluate(self, observation, session):
        mask = observation["mask"]
        return next((index for index in self.ORDER if mask[index]), len(mask) - 1)
"""


def write_policies(repository: Path) -> None:
    write_python(repository, "echo", answering(ECHO))
    write_python(repository, "never", answering("0"))
    write_python(repository, "always", answering("7"))
    write_python(repository, "obeying", answering('int(session.options["inline"])'))
    write_python(repository, "failing", answering("observation['no such feature']"))
    write_python(repository, "dying", dying(ECHO, after=9))
    write_python(repository, "sleeping", sleeping(ECHO, after=3))
    write_python(repository, "passes", _PASSES.format(order=(0, 2, 3)))
    write_python(repository, "no-passes", _PASSES.format(order=()))
    write_python(repository, "wild-passes", answering("1000"))


def need(tool: str) -> str:
    """Give the name of an installed program; skip or fail the test where it is missing."""
    if shutil.which(tool) is None:
        missing(tool)
    return tool


@contextmanager
def _silent(path: Path) -> Iterator[str]:
    """Listen and never answer; give the address."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield f"socket:{path}"


def made_at_a_silent_server(folder: Path, compiled: Callable[..., tuple[_Output, str]]) -> set[_Output]:
    """Compile three times where a server never answers: give the different outputs.

    The server is waited for, then not for a minute, and again by a compilation with a ``retry_after`` of 0.

    Args:
        folder: has the server's socket.
        compiled: compiles with settings, such as ``timeout="0.3"``; gives the output and the messages.

    """
    with _silent(folder / "s") as server:
        first, waited = compiled(server=server, timeout="0.3")
        second, remembered = compiled(server=server, timeout="600")
        third, again = compiled(server=server, timeout="0.3", retry_after="0")
    assert "within 0.3 s" in waited, waited
    assert "within 0.3 s" in again, again
    told = re.search(r"did not answer in time (\d+) s ago; it is asked again in (\d+) s", remembered)
    assert told, remembered
    assert int(told[1]) + int(told[2]) == 60, remembered
    return {first, second, third}


def built_plugin(native: Target, name: str, major: str) -> Path:
    """Build ``policybridge-NAME-MAJOR`` and give its path."""
    if not Path(f"/usr/lib/llvm-{major}/cmake").is_dir():
        missing(f"llvm-{major}-dev")
    target = f"policybridge-{name}-{major}"
    return native(target) / "lib" / f"{target}.so"


def emit(major: str, source: Path, output: Path, *flags: str) -> Path:
    """Compile C to unoptimised bitcode."""
    unoptimised = ["-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes"]
    subprocess.run([need(f"clang-{major}"), *unoptimised, *(flags or ["-Oz"]), source, "-o", output], check=True)
    return output


def emit_demo(major: str, path: str, folder: Path) -> Path:
    """Compile one of the demo's sources to unoptimised bitcode, unless ``folder`` holds it already."""
    output = folder / f"{Path(path).name}-{major}.bc"
    if not output.exists():
        command = COMPILERS[need(f"clang-{major}")](Module(path), output)
        subprocess.run([*command, "-emit-llvm", "-Xclang", "-disable-llvm-passes"], cwd=library_root(), check=True)
    return output


@dataclass(frozen=True)
class Plugin:
    """A plugin of one LLVM major, and the server that it connects to.

    Attributes:
        path: the shared object.
        server: its address.
        transport: over what it connects, ``socket`` or ``grpc``.

    """

    major: str
    path: Path
    server: str
    transport: str = "socket"

    @classmethod
    def of(cls, native: Target, name: str, major: str, server: RunningServer) -> "Plugin":
        """Build it for the compilers of ``major``; ``22-grpc`` reaches the server by gRPC."""
        number, _, transport = major.partition("-")
        if transport == "grpc":
            build_grpc(native)
        plugin = cls(number, built_plugin(native, name, number), "", transport or "socket")
        return replace(plugin, server=plugin.address_of(server))

    def address_of(self, server: RunningServer) -> str:
        """Give the address of ``server`` over this plugin's transport."""
        return server.grpc if self.transport == "grpc" else server.socket

    def environment(self, policy: str | None, **more: str) -> dict[str, str]:
        """Give the environment with which ``policy`` decides; ``stats="x"`` is POLICYBRIDGE_STATS."""
        settings = {"server": self.server, **({} if policy is None else {"policy": policy}), **more}
        return {**os.environ, **{f"POLICYBRIDGE_{name.upper()}": value for name, value in settings.items()}}

    def opt(
        self, module: Path, policy: str, passes: str = "default<Oz>", flags: Sequence[str] = (), **more: str
    ) -> "Optimised":
        """Optimise with the plugin."""
        return self._opt([f"-load-pass-plugin={self.path}", *flags], module, passes, self.environment(policy, **more))

    def plain(self, module: Path, passes: str = "default<Oz>") -> bytes:
        """Optimise without it, and give the bitcode."""
        return self._opt([], module, passes, {**os.environ}).bitcode

    def _opt(self, flags: Sequence[str], module: Path, passes: str, environment: dict[str, str]) -> "Optimised":
        command = [need(f"opt-{self.major}"), *flags, f"-passes={passes}", str(module), "-o", "-"]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return Optimised(done.returncode, done.stdout, done.stderr.decode())


@dataclass(frozen=True)
class Optimised:
    """The result of opt."""

    status: int
    bitcode: bytes
    said: str
