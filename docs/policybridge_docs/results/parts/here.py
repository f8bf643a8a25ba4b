"""The part here: compiles that decide by themselves, near and far from the server, and what they cost it."""

import json
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import Made, run_module


def here(options: Namespace) -> Made:
    """Time compiles that decide here, over gRPC 20 ms away and on the socket, and the server's cost of their sessions."""
    figures: dict[str, Figure] = {}
    with TemporaryDirectory() as name:
        file = Path(name) / "figures.json"

        def measured(module: str, *words: object) -> dict[str, float]:
            run_module(f"tests.measures.{module}", *words, "--json", file)
            read: dict[str, float] = json.loads(file.read_bytes())
            return read

        far = measured("far_server", "--only", "plugin", "--rounds", options.rounds)
        wall = measured("wall_here", "--work", options.wall, "--rounds", options.rounds)
        costs = measured("costs")
    for module in ("8", "281", "10000"):
        for way in ("socket", "far"):
            added = far[f"{module}.plugin {way} here"] - far[f"{module}.plain"]
            figures[f"{module}.{way}"] = Figure(added, "ms")
    figures["files"] = Figure(wall["files"], "files")
    figures |= {way: Figure(100 * (wall[f"{way}.factor"] - 1), "%", 1) for way in ("advisor", "policy")}
    figures["session"] = Figure(1e3 * costs["own"], "ms", 2)
    figures["session.bytes"] = Figure(costs["stored"], "bytes", -2)
    figures["decision"] = Figure(1e6 * costs["decision"], "µs")
    command = "python -m tests.measures.far_server --only plugin; … wall_here --work DIR; … costs"
    return Made(command, figures, "clang-22", decided="inliner")
