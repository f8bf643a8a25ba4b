"""The parts here and decisions: compiles that decide by themselves, their cost to a server, near and far."""

import json
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import Made, run_module

_LINK: Final = 125e6
"""Bytes that a link of a gigabit carries in a second."""
_REPORT: Final = 8 * 48
"""Bytes of a decision in a report: 47 features and the advice."""


def here(options: Namespace) -> Made:
    """Time compiles that decide here, over gRPC 20 ms away and on the socket, and their sessions at the server."""
    far = _measured("far_server", "--only", "plugin", "--rounds", options.rounds)
    wall = _measured("wall_here", "--work", options.wall, "--rounds", options.rounds)
    costs = _measured("costs")
    figures: dict[str, Figure] = {}
    for module in ("8", "281", "10000"):
        for way in ("socket", "far"):
            added = far[f"{module}.plugin {way} here"] - far[f"{module}.plain"]
            figures[f"{module}.{way}"] = Figure(added, "ms")
    figures |= {way: Figure(100 * (wall[f"{way}.factor"] - 1), "%", 1) for way in ("advisor", "policy")}
    figures["processor"] = Figure(100 * (wall["policy.processor_factor"] - 1), "%", 1)
    figures["session"] = Figure(1e3 * costs["own"], "ms", 2)
    figures["session.bytes"] = Figure(costs["stored"], "bytes", -2)
    figures["rate"] = Figure(281 / costs["own"], "decisions/s", -3)
    figures["link.rate"] = Figure(_LINK / _REPORT, "decisions/s", -3)
    command = "python -m tests.measures.far_server --only plugin; … wall_here --work DIR; … costs"
    return Made(command, figures, "clang-22", decided="inliner")


def decisions(options: Namespace) -> Made:
    """Time decisions of clients that decide here or ask on the socket, beside Triton's stream."""
    told = _measured("decisions_here", "--triton", "--rounds", options.rounds)
    figures: dict[str, Figure] = {}
    for place in ("here", "there", "triton"):
        figures[f"p50.{place}"] = Figure(told[f"{place}.p50_us"], "µs", 1 if place == "here" else 0)
        digits = -2 if place == "triton" else -3
        figures[f"rate.{place}"] = Figure(told[f"{place}.decisions_per_second"], "decisions/s", digits)
    return Made("python -m tests.measures.decisions_here --triton", figures, decided="inliner")


def _measured(measure: str, *words: object) -> dict[str, float]:
    with TemporaryDirectory() as name:
        file = Path(name) / "figures.json"
        run_module(f"tests.measures.{measure}", *words, "--json", file)
        read: dict[str, float] = json.loads(file.read_bytes())
        return read
