"""Parts that score: the bundled policies, tuned stores and constant switches, in the sizes of objects."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import CLI, Made, as_typed, bundled, run_module
from policybridge_docs.results.sample import sample
from policybridge_train.scoring.results import Comparison, Measure, Scores
from policybridge_train.scoring.statistics import Change
from policybridge_train.scoring.summary import compare

_BUDGETS: Final = (16, 32, 64)
CONSTANTS: Final = (
    "flag:-mllvm,-disable-machine-licm,-mllvm,-disable-lsr,"
    "-mllvm,-enable-ext-tsp-block-placement,-mllvm,-apply-ext-tsp-for-size"
)
"""Switches for all functions that make most code smaller."""
_MEASURES: Final[Sequence[Measure]] = ("text", "exec", "linked text", "linked exec")


def scores(options: Namespace) -> Made:
    """Score the bundled policy on the held-out projects of ``--corpus``, with clang-22 and the plugin."""
    words = ["score", "--part", "held-out", "--candidate", "inliner", "--compiler", "clang-22"]
    with TemporaryDirectory() as name, bundled(Path(name)) as address:
        file = Path(name) / "scores.json"
        run_module(
            CLI, *words, "--corpus", options.corpus, "--plugins", options.plugins, "--server", address, "--json", file
        )
        (comparison,) = read_scores(file)
    return Made(as_typed(words, "--corpus DIR"), dict(_scores(comparison)), comparison.version, decided="inliner")


def chosen(options: Namespace) -> Made:
    """Score the bundled policy of both kinds, and constant switches, on the held-out modules of ``--corpus``."""
    words = ["score", "--part", "held-out", "--module", "*", "--candidate", "size", "--compiler", "clang-22"]
    places = ["--candidate", CONSTANTS, "--corpus", options.corpus, "--plugins", options.plugins]
    with TemporaryDirectory() as name, bundled(Path(name)) as address:
        file = Path(name) / "scores.json"
        run_module(CLI, *words, *places, "--server", address, "--json", file)
        policy, constants = read_scores(file)
    figures = dict(_scores(policy)) | {f"constants.{key}": figure for key, figure in _scores(constants)}
    return Made(as_typed(words, "--corpus DIR"), figures, policy.version, decided="size")


def tuned(options: Namespace) -> Made:
    """Tune the package re2 of ``--corpus`` from nothing, and score its store."""
    words = ["autotune", "--project", "re2", "--decide", "inline", "--budget", "16", "--compiler", "clang-22"]
    scoring = ["score", "--project", "re2", "--compiler", "clang-22"]
    places = ["--corpus", options.corpus, "--plugins", options.plugins]
    with TemporaryDirectory() as name:
        store, file = Path(name) / "tuned.db", Path(name) / "scores.json"
        run_module(CLI, *words, *places, "--store", store)
        run_module(CLI, *scoring, *places, "--candidate", store, "--json", file)
        (comparison,) = read_scores(file)
    figures = dict(sizes("", comparison))
    figures["modules"] = Figure(sum(row.ok for row in comparison.modules), "modules")
    return Made(as_typed(words, "--corpus DIR --store FILE"), figures, comparison.version)


def sqlite(options: Namespace) -> Made:
    """Score the store that ``make demo-autotune`` has made in ``--sqlite``."""
    words = ["score", "--module", "sqlite3/sqlite3.o", "--compiler", "clang-22", "--plugins", options.plugins]
    with TemporaryDirectory() as name:
        file = Path(name) / "scores.json"
        places = ["--corpus", options.sqlite / "clang-22", "--candidate", options.sqlite / "clang-22.db"]
        run_module(CLI, *words, *places, "--json", file)
        (comparison,) = read_scores(file)
    return Made("make demo-autotune MINUTES=32 AUTOTUNE='--jobs 1'", dict(sizes("", comparison)), comparison.version)


def passes(options: Namespace) -> Made:
    """Tune a sample of held-out modules of ``--corpus``, and score the stores and constant switches against -Oz.

    A search whose store is in ``--stores`` goes on where it ended.
    """
    figures: dict[str, Figure] = {}
    compiler = ""
    places = ["--corpus", options.corpus, "--plugins", options.plugins, "--compiler", "clang-22"]
    options.stores.mkdir(parents=True, exist_ok=True)
    for key, language in (("c", "c"), ("cpp", "c++")):
        names = sample(options.corpus, language)
        only = [word for name in names for word in ("--module", name)]
        stores = {budget: options.stores / f"{key}-{budget}.db" for budget in _BUDGETS}
        for budget, store in stores.items():
            run_module(CLI, "autotune", *only, *places, "--budget", budget, "--store", store)
        with TemporaryDirectory() as name:
            file = Path(name) / "scores.json"
            candidates = [word for each in (CONSTANTS, *stores.values()) for word in ("--candidate", each)]
            run_module(CLI, "score", *only, *places, *candidates, "--json", file)
            comparisons = read_scores(file)
        for label, comparison in zip(("constants", *map(str, stores)), comparisons, strict=True):
            figures |= dict(sizes(f"{key}.{label}.", comparison))
            compiler = comparison.version
        figures[f"{key}.modules"] = Figure(len(names), "modules")
    return Made("policybridge autotune --budget N --compiler clang-22 --corpus DIR --store FILE", figures, compiler)


def read_scores(file: Path) -> Sequence[Comparison]:
    """Give the comparisons of ``policybridge score --json``."""
    # json and not msgspec, because names of files may have bytes that are no UTF-8.
    written = json.loads(file.read_bytes())
    for comparison in written["comparisons"]:
        for row in comparison["modules"]:
            for side in (row["before"], row["after"]):
                side["totals"] = {measure: side[measure] for measure in _MEASURES[:2]}
    return msgspec.convert(written, Scores).comparisons


def _scores(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    groups: Mapping[str, dict[str, str]] = {"cpp": {"language": "c++"}, "c": {"language": "c"}, "all": {}}
    for group, only in groups.items():
        for measure in _MEASURES:
            yield from _changes(f"{group}.{measure.replace(' ', '-')}", compare(comparison, measure, **only))
        modules = sum(row.ok for row in comparison.modules if not only or row.language == only["language"])
        yield f"{group}.modules", Figure(modules, "modules")
    yield "projects", Figure(len({row.project for row in comparison.modules if row.ok}), "projects")


def _changes(key: str, change: Change | None) -> Iterator[tuple[str, Figure]]:
    if change is not None and change.total is not None:
        value, low, high = (100 * each for each in (change.total.value, change.total.low, change.total.high))
        yield key, Figure(value, "%", 2, signed=True, low=low, high=high)


def sizes(prefix: str, comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Give the changes of text and exec over all modules."""
    for measure in _MEASURES[:2]:
        change = compare(comparison, measure)
        if change and change.total:
            yield f"{prefix}{measure}", Figure(100 * change.total.value, "%", 2, signed=True)
