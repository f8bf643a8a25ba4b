"""``python -m policybridge_docs.results [PART…]``: measure, write results/PART.json, and rewrite the pages' figures."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from policybridge_bench.results import machine
from policybridge_core.errors import PolicyBridgeError, PolicyFailedError
from policybridge_docs.links import ROOT
from policybridge_docs.results import picture
from policybridge_docs.results.figures import Results, bundled_digest, commit, read_results, write_results
from policybridge_docs.results.pages import keys, rewritten
from policybridge_docs.results.parts import PARTS

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/attacks/README.md")

_PLACES: Final = {
    "corpus": ("corpus", "all but demo and speed: the corpus (make corpus)"),
    "plugins": ("native/lib", "all but demo and speed: the plugin's folder"),
    "stores": ("passes", "passes: folder of stores"),
    "packages": ("measured", "packages: folder of builds"),
    "sqlite": ("sqlite", "sqlite: folder of a store"),
    "echoes": ("echoes", "echoes: folder of counts"),
    "linked": ("linked", "link_time, link_tuned and rust: folder of builds"),
    "built": ("programs", "programs_policy: folder of builds"),
    "cycles": ("cycles", "cycles: folder of builds"),
    "profiled": ("profiled", "profiled: folder of builds"),
    "targets": ("targets", "targets: folder of corpora"),
    "wall": ("wall", "here: folder of sources"),
    "cache": ("bench", "speed: folder for other servers"),
    "tally": ("kills.json", "kills: totals of the runs so far"),
    "compared": ("differential.json", "differential: totals of the runs so far"),
}
"""Options that name a file or folder: its place in .cache, and the parts that read it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts; without one, only rewrite the pages."""
    parser = argparse.ArgumentParser(prog="python -m policybridge_docs.results", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all: each of them")
    for name, (place, meaning) in _PLACES.items():
        parser.add_argument(f"--{name}", type=Path, default=ROOT / ".cache" / place, help=meaning)
    parser.add_argument("--rounds", type=int, default=5, help="speed, here and decisions: rounds (default: 5)")
    parser.add_argument("--programs", type=int, default=10_000, help="differential: programs in all (default: 10000)")
    options = parser.parse_args(arguments)
    names = list(PARTS) if "all" in options.parts else options.parts
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"{unknown[0]!r} is no part; there are {', '.join(PARTS)}")
    try:
        for name in names:
            _measure(name, options)
    except PolicyBridgeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _rewrite()
    return 0


def _measure(name: str, options: argparse.Namespace) -> None:
    made = PARTS[name](options)
    # A figure that no page shows is not kept.
    shown = {key for page in PAGES for key in keys(page.read_text(encoding="utf-8"))} | picture.KEYS
    figures = {key: figure for key, figure in made.figures.items() if f"{name}:{key}" in shown}
    wanted = {key for key in shown if key.startswith(f"{name}:")}
    if missing := sorted(wanted - {f"{name}:{key}" for key in figures}):
        raise PolicyFailedError(f"the pages show figures that {name} did not measure: {', '.join(missing)}")
    results = Results(
        command=made.command,
        commit=commit(),
        date=datetime.now(UTC).date().isoformat(),
        machine={**machine(), "load": f"{os.getloadavg()[1]:.1f}"},
        compiler=made.compiler,
        policy=bundled_digest(made.decided) if made.decided else "",
        figures=figures,
    )
    write_results(name, results)


def _rewrite() -> None:
    results = read_results()
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        if (new := rewritten(old, results)) != old:
            page.write_text(new, encoding="utf-8")
            print(os.path.relpath(page))
    picture.FILE.write_text(picture.drawn(results["demo"]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
