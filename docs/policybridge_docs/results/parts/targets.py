"""The part for other machines: the bundled policies on the same held-out modules, compiled for each target."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import CLI, Made, as_typed, bundled, run_module
from policybridge_docs.results.parts.scored import read_scores, sizes
from policybridge_docs.results.sample import sample
from policybridge_train.corpus.description import Corpus

_TRIPLES: Final[Mapping[str, str]] = {
    "aarch64": "aarch64-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "thumb": "thumbv7-linux-gnueabihf",
}
_COUNTS: Final = {"cpp": ("c++", 24), "c": ("c", 16)}
"""Languages and numbers of modules."""


def targets(options: Namespace) -> Made:
    """Score the bundled policies on a sample of ``--corpus`` and on the same modules of ``--targets``' corpora."""
    corpora = {"x86_64": options.corpus, **{key: options.targets / triple for key, triple in _TRIPLES.items()}}
    words = ["score", "--candidate", "inliner", "--candidate", "size", "--compiler", "clang-22"]
    figures: dict[str, Figure] = {}
    compiler = ""
    with TemporaryDirectory() as name, bundled(Path(name)) as address:
        places = ["--plugins", options.plugins, "--server", address, "--json", Path(name) / "scores.json"]
        for group, names in _samples(corpora).items():
            only = [word for module in names for word in ("--module", module)]
            figures[f"{group}.modules"] = Figure(len(names), "modules")
            for key, folder in corpora.items():
                run_module(CLI, *words, *only, "--corpus", folder, *places)
                for policy, comparison in zip(
                    ("inliner", "size"), read_scores(Path(name) / "scores.json"), strict=True
                ):
                    figures |= dict(sizes(f"{key}.{policy}.{group}.", comparison))
                    compiler = comparison.version
    return Made(as_typed(words, "--module NAME… --corpus DIR"), figures, compiler, decided="inliner")


def _samples(corpora: Mapping[str, Path]) -> dict[str, list[str]]:
    """Give the modules that every corpus has, of those that are drawn from the first one."""
    known = [{module.name for module in Corpus.open(folder).modules} for folder in corpora.values()]
    first = next(iter(corpora.values()))
    return {group: [*_known(sample(first, *drawn), known)] for group, drawn in _COUNTS.items()}


def _known(names: list[str], known: list[set[str]]) -> Iterator[str]:
    return (name for name in names if all(name in corpus for corpus in known))
