"""The compiler caches that may stand before a compiler, each with a cache of its own."""

import json
import random
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CACHES: Final = ("ccache", "sccache", "buildcache")

_EXTRA_FILES: Final = {
    "ccache": "CCACHE_EXTRAFILES",
    "sccache": "SCCACHE_EXTRAFILES",
    "buildcache": "BUILDCACHE_HASH_EXTRA_FILES",
}
_STATISTICS: Final = {
    "ccache": ("--print-stats",),
    "sccache": ("--show-stats", "--stats-format", "json"),
    "buildcache": ("--show-stats",),
}

_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives by itself to other servers and clients."""


@dataclass(frozen=True)
class Cache:
    """A cache's program, and the environment in which it has its own folder.

    Attributes:
        extra_files: the variable that names further files for its key.

    """

    name: str
    program: str
    environment: Mapping[str, str]

    @property
    def extra_files(self) -> str:
        return _EXTRA_FILES[self.name]

    @property
    def hits(self) -> int:
        """The objects that it has given so far."""
        said = self.run(*_STATISTICS[self.name])
        if self.name == "sccache":
            return sum(json.loads(said)["stats"]["cache_hits"]["counts"].values())
        names = r"(?:direct|preprocessed)_cache_hit\t" if self.name == "ccache" else r"(?:Direct|Local) hits: +"
        return sum(int(count) for count in re.findall(rf"{names}(\d+)", said))

    def run(self, *words: str) -> str:
        """Run the cache itself; give its output.

        Raises:
            CalledProcessError: it fails.

        """
        command = [self.program, *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout


@contextmanager
def opened_cache(program: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Cache]:
    """Give the empty cache of a program, which is ccache, sccache or buildcache by its name; end its server."""
    port = str(free_port())
    folders = {name: str(folder) for name in ("CCACHE_DIR", "SCCACHE_DIR", "BUILDCACHE_DIR")}
    cache = Cache(Path(program).name, program, {**environment, **folders, "SCCACHE_SERVER_PORT": port})
    try:
        yield cache
    finally:
        if cache.name == "sccache":
            cache.run("--stop-server")


def free_port() -> int:
    """Give a port that no other process gets from the system before sccache's server has it."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("all ports for sccache are taken")
