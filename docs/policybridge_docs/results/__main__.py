"""``python -m policybridge_docs.results [PART…]``: measure, write results/PART.json, and rewrite the pages' figures."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from policybridge_bench.results import machine
from policybridge_core.errors import PolicyBridgeError, PolicyFailedError
from policybridge_docs.links import ROOT
from policybridge_docs.results import picture
from policybridge_docs.results.figures import Results, bundled_digest, commit, read_results, write_results
from policybridge_docs.results.pages import keys, rewritten
from policybridge_docs.results.parts import PARTS

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/attacks/README.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts; without one, only rewrite the pages."""
    parser = argparse.ArgumentParser(prog="python -m policybridge_docs.results", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all: each of them")
    parser.add_argument(
        "--corpus",
        type=Path,
        default=ROOT / ".cache/corpus",
        help="all but demo and speed: the corpus (make corpus)",
    )
    parser.add_argument(
        "--plugins",
        type=Path,
        default=ROOT / ".cache/native/lib",
        help="all but demo and speed: the plugin's folder",
    )
    parser.add_argument("--stores", type=Path, default=ROOT / ".cache/passes", help="passes: folder of stores")
    parser.add_argument("--packages", type=Path, default=ROOT / ".cache/measured", help="packages: folder of builds")
    parser.add_argument("--sqlite", type=Path, default=ROOT / ".cache/sqlite", help="sqlite: folder of a store")
    parser.add_argument("--echoes", type=Path, default=ROOT / ".cache/echoes", help="echoes: folder of counts")
    parser.add_argument("--linked", type=Path, default=ROOT / ".cache/linked", help="link_time: folder of builds")
    parser.add_argument(
        "--built", type=Path, default=ROOT / ".cache/programs", help="programs_policy: folder of builds"
    )
    parser.add_argument("--cycles", type=Path, default=ROOT / ".cache/cycles", help="cycles: folder of builds")
    parser.add_argument("--targets", type=Path, default=ROOT / ".cache/targets", help="targets: folder of corpora")
    parser.add_argument("--wall", type=Path, default=ROOT / ".cache/wall", help="here: folder of sources")
    parser.add_argument("--rounds", type=int, default=5, help="speed and here: rounds (default: 5)")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/bench", help="speed: folder for other servers")
    parser.add_argument(
        "--tally", type=Path, default=ROOT / ".cache/kills.json", help="kills: totals of the runs so far"
    )
    parser.add_argument(
        "--compared",
        type=Path,
        default=ROOT / ".cache/differential.json",
        help="differential: totals of the runs so far",
    )
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
