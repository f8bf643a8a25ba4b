"""Time compiles whose server is 20 ms away, over gRPC with TLS and a token, beside plain ones.

    python -m tests.measures.far_server [--rounds N] [--only WORD] [--hostile] [--json FILE]

clang-22 compiles three modules, of 8, 281 and 10,000 decisions, by turns: plain; with the plugin and the policy
`inliner` over this machine's socket, and over gRPC on a far way, decided in the compiler (`here`) and by the server
(`there`, not 10,000 times); the same through ``policybridge-run``. The far way is a proxy in a process of its own,
which delays each direction by half of the round trip, and new connections by one more (`tests.measures.delaying`).
Prints the medians, in milliseconds, and what each adds to plain. What a way adds over the socket is the price of the
distance; the rest is that of the advisor and of other objects.

With ``--hostile`` the server on the way never answers, answers each time after the time-out, or breaks in the middle of
the form; the time-out is 1 s, and a server is not remembered.

Needs cmake, ninja, g++, clang-22, LLVM's headers, and gRPC's.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from tests.certificates import Authority, token, write_tokens
from tests.measures.delaying import Way, far
from tests.native.conftest import BUILD, build_grpc, built
from tests.native.llvm.plugins import built_plugin
from tests.server.ledger.asking import await_forms
from tests.serving import started

ROUND_TRIP: Final = 0.02
TIMEOUT: Final = 1.0


@dataclass(frozen=True)
class Source:
    """A command that compiles a module, and the folder to run it in."""

    command: list[str]
    folder: Path


@dataclass(frozen=True)
class Served:
    """A server's addresses, and the environment of its clients."""

    socket: str
    port: int
    environment: Mapping[str, str]


def sources(folder: Path) -> dict[str, Source]:
    """Write the modules; give their commands by name."""
    unwind = Source(COMPILERS["clang-22"](Module("libunwind/src/libunwind.cpp"), folder / "o"), library_root())
    found = {"281": unwind}
    for name, functions in (("8", 4), ("10000", 5000)):
        source = folder / f"{name}.c"
        source.write_text(_written(functions))
        found[name] = Source(["clang-22", "-Oz", "-c", str(source), "-o", str(folder / "o")], folder)
    return {name: found[name] for name in ("8", "281", "10000")}


def _written(functions: int) -> str:
    """Give a module with two calls for each function."""
    lines = [f"static int f{n}(int a, int b) {{ return a * {n + 3} ^ b; }}" for n in range(functions)]
    for n in range(functions // 2):
        called = [2 * n, 2 * n + 1, (2 * n + 7) % functions, (3 * n + 1) % functions]
        calls = " + ".join(f"f{each}(a, b)" for each in called)
        lines.append(f"int g{n}(int a, int b) {{ return {calls}; }}")
    return "\n".join(lines) + "\n"


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve the bundled policies over TLS with a token, and on a socket, with a ledger."""
    ours = Authority(folder / "ours").issue("server")
    tokens = write_tokens(folder / "tokens.toml", {"asker": ["evaluate"]})
    (folder / "token").write_text(token("asker"))
    listen = ("--grpc", "127.0.0.1:0", "--socket", folder / "s", "--tokens", tokens, "--ledger", folder / "ledger.db")
    tls = ("--tls-certificate", ours.certificate, "--tls-key", ours.key)
    with started("--demo", *listen, *tls) as (_, (grpcs, socket)):
        await_forms(socket, "inliner")
        environment = {
            "POLICYBRIDGE_TLS_CA": str(folder / "ours" / "ca.pem"),
            "POLICYBRIDGE_TOKEN_FILE": str(folder / "token"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        yield Served(socket, int(grpcs.rpartition(":")[2]), environment)


class Bench:
    """Compiles, and times it."""

    def __init__(self, served: Served, stats: Path, plugin: Path | None) -> None:
        build_grpc(built)
        self._plugin = plugin or built_plugin(built, "inliner", "22")
        # Linked statically it speaks no gRPC.
        dynamic = (BUILD.with_name("native-dynamic"), "-DPOLICYBRIDGE_LAUNCHER_STATIC=OFF", "-DPOLICYBRIDGE_LLVM=")
        build_grpc(built, *dynamic)
        self._launcher = built("policybridge-run", *dynamic) / "bin" / "policybridge-run"
        self._served = served
        self._stats = stats

    def seconds(self, source: Source, by: str, address: str = "", place: str = "here") -> float:
        """Compile ``by`` ``plain``, ``plugin`` or ``run``; the advice has to come from the policy."""
        words, environment = self._words(source, by, address, place)
        begun = time.monotonic()
        done = subprocess.run(words, cwd=source.folder, env=environment, capture_output=True, text=True, check=True)
        seconds = time.monotonic() - begun
        if by != "plain":
            read = json.loads(self._stats.read_text())
            assert read["fallback"] is None, done.stderr
            assert read["decisions"], done.stderr
        return seconds

    def failing(self, source: Source, by: str, address: str) -> tuple[float, bool]:
        """Compile without a usable server; give the seconds, and whether the policy decided nevertheless."""
        words, environment = self._words(source, by, address, "here")
        hasty = {"POLICYBRIDGE_TIMEOUT": str(TIMEOUT), "POLICYBRIDGE_RETRY_AFTER": "0"}
        more = ["--timeout", str(TIMEOUT), "--retry-after", "0"] if by == "run" else []
        # No form is there yet, so that each compile needs the server.
        with TemporaryDirectory(prefix="pb-") as cache:
            environment |= {**hasty, "XDG_CACHE_HOME": cache}
            begun = time.monotonic()
            command = [*words[:1], *more, *words[1:]] if more else words
            subprocess.run(command, cwd=source.folder, env=environment, capture_output=True, check=True)
            seconds = time.monotonic() - begun
        return seconds, json.loads(self._stats.read_text())["fallback"] is None

    def _words(self, source: Source, by: str, address: str, place: str) -> tuple[Sequence[str], dict[str, str]]:
        environment = {**os.environ, **self._served.environment}
        if by == "plain":
            return source.command, environment
        if by == "run":
            options = ["--server", address, "--policy", "inliner", "--evaluate", place, "--stats", str(self._stats)]
            return [str(self._launcher), *options, "--", *source.command], environment
        settings = {"SERVER": address, "POLICY": "inliner", "EVALUATE": place, "STATS": str(self._stats)}
        environment |= {f"POLICYBRIDGE_{name}": value for name, value in settings.items()}
        return [*source.command, f"-fpass-plugin={self._plugin}"], environment


def main() -> None:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", metavar="WORD", help="the ways that have this word: plugin, here, …")
    parser.add_argument("--module", action="append", metavar="N", help="a module: 8, 281 or 10000; can be repeated")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--plugin", type=Path, help="another build's, with its policybridge-grpc.so beside it")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        with serving(folder) as served:
            bench, found = Bench(served, folder / "stats.json", arguments.plugin), sources(folder)
            found = {name: found[name] for name in arguments.module or found}
            if arguments.hostile:
                measured = hostile(bench, found, served)
            else:
                measured = near_and_far(bench, found, served, arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


def near_and_far(
    bench: Bench, found: Mapping[str, Source], served: Served, arguments: argparse.Namespace
) -> dict[str, float]:
    """Give the medians in milliseconds by module and way."""
    measured: dict[str, float] = {}
    with far(Way(served.port, ROUND_TRIP)) as port:
        address = f"grpcs:127.0.0.1:{port}"
        ways = {
            f"{by} {way} {place}": (by, {"socket": served.socket, "far": address}[way], place)
            for by in ("plugin", "run")
            for way, place in (("socket", "here"), ("far", "here"), ("far", "there"))
        }
        for name, source in found.items():
            kept = {way: each for way, each in ways.items() if arguments.only in way}
            if name == "10000":
                kept = {way: each for way, each in kept.items() if each[2] == "here"}
            times: dict[str, list[float]] = {way: [] for way in ("plain", *kept)}
            for number in range(arguments.rounds + 1):
                for way, taken in times.items():
                    # The first round fills the caches; a server that is asked each time is not asked eleven times.
                    if "there" not in way or number < 3:
                        seconds = bench.seconds(source, *kept.get(way, ("plain",)))
                        taken.extend([seconds] if number else [])
            for way, seen in times.items():
                measured[f"{name}.{way}"] = round(1e3 * statistics.median(seen), 1)
                added = measured[f"{name}.{way}"] - measured[f"{name}.plain"]
                print(f"{name:>6} {way:<20} {measured[f'{name}.{way}']:9.1f} ms {added:+9.1f}", flush=True)
    return measured


def hostile(bench: Bench, found: Mapping[str, Source], served: Served) -> dict[str, float]:
    """Give the medians of three compiles at servers that fail, in milliseconds."""
    ways = {
        "silent": Way(served.port, ROUND_TRIP, silent=True),
        "late": Way(served.port, 4 * TIMEOUT),
        "breaks in the form": Way(served.port, ROUND_TRIP, 50_000),
    }
    measured: dict[str, float] = {}
    with ExitStack() as stack:
        addresses = {name: f"grpcs:127.0.0.1:{stack.enter_context(far(way))}" for name, way in ways.items()}
        addresses["absent"] = "grpcs:127.0.0.1:1"
        for name in set(found) - {"10000"}:
            for by in ("plugin", "run"):
                for kind, address in addresses.items():
                    tries = [bench.failing(found[name], by, address) for _ in range(3)]
                    taken = round(1e3 * statistics.median(each[0] for each in tries), 1)
                    decided = sum(each[1] for each in tries)
                    measured[f"{name}.{by} {kind}"] = taken
                    print(f"{name:>6} {by} {kind:<20} {taken:9.1f} ms, by the policy: {decided} of 3", flush=True)
    return measured


if __name__ == "__main__":
    main()
