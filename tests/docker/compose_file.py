"""docker/compose.yaml as the tests read it: with the defaults of its variables, and outside containers."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.needs import ROOT

COMPOSE: Final = ROOT / "docker" / "compose.yaml"
EXAMPLE: Final = ROOT / "docker" / ".env.example"

_VARIABLE: Final = re.compile(r"\$\$|\$\{(\w+):-([^}]*)\}")
_PLACE: Final = re.compile(r"(?<![\w./])/(policies|ledger|secrets|credentials|training|run/policybridge(?:-server)?)\b")


def defaults() -> dict[str, str]:
    """Give the variables of the file, and their defaults."""
    return {name: default for name, default in _VARIABLE.findall(COMPOSE.read_text()) if name}


def services() -> dict[str, dict[str, Any]]:
    """Give the services, by their names, with the defaults of the variables."""
    text = _VARIABLE.sub(lambda found: "$" if found[1] is None else found[2], COMPOSE.read_text())
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


def words(command: str | list[str]) -> list[str]:
    """Give the words of a service's command or of the test of its health."""
    given = shlex.split(command) if isinstance(command, str) else list(command)
    return given[1:] if given[:1] == ["CMD"] else given


class Outside:
    """The images' files in a folder, and the environment in which their commands run there.

    Attributes:
        folder: stands for the root of the containers' file system; its name is short enough for Unix sockets.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("policies", "ledger", "secrets", "credentials", "run/policybridge", "run/policybridge-server"):
            (folder / name).mkdir(parents=True)
        self._programs = folder / "bin"
        self._programs.mkdir()
        for script in (ROOT / "docker" / "bin").iterdir():
            self._write(f"policybridge-{script.name}", self.place(script.read_text()))
        self._write("policybridge", f'#!/bin/sh\nexec {sys.executable} -m policybridge_client.cli "$@"\n')

    def _write(self, name: str, text: str) -> None:
        (self._programs / name).write_text(text)
        (self._programs / name).chmod(0o755)

    def place(self, text: str) -> str:
        """Give ``text`` with the containers' paths below the folder, and free ports of this machine."""
        return _PLACE.sub(rf"{self.folder}/\1", text).replace("0.0.0.0:8080", "127.0.0.1:0")

    def environment(self, given: Mapping[str, object] | None = None) -> dict[str, str]:
        """Give the environment of a service that has ``given``."""
        placed = {name: self.place(str(value)) for name, value in (given or {}).items()}
        path = os.pathsep.join((str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        return {**os.environ, "PATH": path, "POLICYBRIDGE_GRPC": "127.0.0.1:0", **placed}
