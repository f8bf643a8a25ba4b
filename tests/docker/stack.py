"""The stack of docker/compose.yaml, run by podman-compose."""

import json
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

from tests.docker import images
from tests.docker.compose_file import COMPOSE
from tests.docker.engine import Engine, run

_PATIENCE: Final = 240.0
_PAUSE: Final = 0.5


class Stack:
    """A project of podman-compose with its own ports, volumes and network.

    Attributes:
        podman: what runs it.
        http: the address of the server's page, on this machine.
        prometheus: that of Prometheus.

    """

    def __init__(self, podman: Engine, folder: Path, **settings: str) -> None:
        self.podman = podman
        self._name = f"policybridge-{folder.name}"
        ports = {name: str(_free_port()) for name in ("GRPC_PORT", "HTTP_PORT", "TLS_PORT", "PROMETHEUS_PORT")}
        self.http = f"http://127.0.0.1:{ports['HTTP_PORT']}"
        self.prometheus = f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}"
        made = {"SERVER_IMAGE": images.SERVER, "TOOLS_IMAGE": images.TOOLS, "PROMETHEUS_IMAGE": images.PROMETHEUS}
        lines = (f"{name}={value}\n" for name, value in {**made, **ports, **settings}.items())
        self._settings = folder / "stack.env"
        self._settings.write_text("".join(lines))

    def compose(self, *words: object, check: bool = True, profile: str = "") -> str:
        """Run ``podman-compose WORDS``; give its standard output."""
        program = Path(sys.executable).with_name("podman-compose")
        options = ["--project-name", self._name, "--env-file", self._settings, "--file", COMPOSE]
        options += ["--profile", profile] if profile else []
        return run(program, *options, *words, env=self.podman.environment, check=check).stdout

    def up(self, *services: str, scale: str = "", profile: str = "") -> None:
        """Start services whose images there are, without those that they need."""
        more = ["--scale", scale] if scale else []
        self.compose("up", "--detach", "--no-build", "--no-recreate", "--no-deps", *more, *services, profile=profile)

    def name(self, service: str, number: int = 1) -> str:
        """Give the name of a service's container."""
        return f"{self._name}_{service}_{number}"

    def execute(self, service: str, *words: object, check: bool = True) -> str:
        """Run a command in a service's first container; give its standard output."""
        return self.podman("exec", self.name(service), *words, check=check)

    def inspect(self, service: str, form: str) -> str:
        """Give what podman knows of a service's first container."""
        return self.podman("inspect", "--format", form, self.name(service)).strip()

    def wait_healthy(self, service: str) -> None:
        """Wait until a service's own health check says so; systemd, which runs it otherwise, may not be there."""
        check = ("podman", "healthcheck", "run", self.name(service))
        wait_for(lambda: run(*check, env=self.podman.environment, check=False).returncode == 0, f"{service}'s health")

    def down(self) -> None:
        """Remove all containers of the project, and keep its volumes."""
        mine = self.podman("ps", "--all", "--quiet", "--filter", f"label=io.podman.compose.project={self._name}")
        # podman-compose's own `down` leaves the containers of a scaled service.
        for container in mine.split():
            self.podman("stop", "--time", "30", container, check=False)
        self.compose("down", check=False)
        self.podman("rm", "--force", "--ignore", *mine.split(), check=False)

    def destroy(self) -> None:
        """Remove the containers, and the volumes with all that is in them."""
        self.down()
        mine = self.podman("volume", "ls", "--quiet", "--filter", f"label=io.podman.compose.project={self._name}")
        self.podman("volume", "rm", "--force", *mine.split(), check=False)
        self.podman("network", "rm", "--force", f"{self._name}_default", check=False)

    def sessions(self, service: str = "server") -> list[dict[str, Any]]:
        """Give the sessions in a server's ledger."""
        listed = ("policybridge", "sessions", "list", "--json", "--ledger", "/ledger/ledger.db")
        return [json.loads(line) for line in self.execute(service, *listed).splitlines()]

    def ask(self, query: str) -> float:
        """Give the value of a query in Prometheus; 0 where there is none."""
        found = fetch(f"{self.prometheus}/api/v1/query?query={query}")["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def firing(self) -> set[str]:
        """Give the names of the alerts that fire in Prometheus."""
        alerts = fetch(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@contextmanager
def running(podman: Engine, folder: Path, **settings: str) -> Iterator[Stack]:
    """Give a stack, of which nothing is left in the end."""
    stack = Stack(podman, folder, **settings)
    try:
        yield stack
    finally:
        stack.destroy()


def fetch(address: str) -> Any:
    """Give what an address of HTTP answers in JSON."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.loads(answer.read())


def wait_for(so: Callable[[], bool], what: str) -> None:
    """Wait until something is so; that a server does not answer yet is no error."""
    end, pause = monotonic() + _PATIENCE, Event()
    while not _holds(so):
        assert monotonic() < end, f"waited {_PATIENCE:g} s in vain for {what}"
        pause.wait(_PAUSE)


def _holds(so: Callable[[], bool]) -> bool:
    try:
        return so()
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
