"""Which mutants are run: of each area as many by chance, and none that is known to change no behaviour."""

import hashlib
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.targets import SERVER, TARGETS


class Listed:
    """The mutants that no test can notice; `survivors.toml` has the reason of each."""

    def __init__(self) -> None:
        text = (Path(__file__).parent / "survivors.toml").read_text()
        self._known = {(each["path"], each["old"], each["new"]) for each in tomllib.loads(text).get("survivor", [])}

    def __contains__(self, mutant: Mutant) -> bool:
        return (mutant.path, mutant.old, mutant.new) in self._known


def area_of(path: str) -> str:
    """Give the folder of the server that a file is in; ``server`` if it is in none."""
    folder, slash, _ = path.removeprefix(f"{SERVER}/").partition("/")
    return folder if slash else "server"


def drawn(root: Path, count: int, seed: int) -> Iterator[Mutant]:
    """Give ``count`` mutants of each area, one of each area after the other.

    A mutant's place in the draw depends on the seed and itself alone, so that other ones stay when a file changes.
    """
    areas: dict[str, list[Mutant]] = {}
    for path in sorted(TARGETS, key=area_of):
        areas.setdefault(area_of(path), []).extend(mutants_of(path, (root / path).read_text()))
    lots = [sorted(mutants, key=lambda mutant: _place(mutant, seed))[:count] for mutants in areas.values()]
    for row in zip_longest(*lots):
        yield from filter(None, row)


def _place(mutant: Mutant, seed: int) -> tuple[bytes, int]:
    text = f"{seed}\0{mutant.path}\0{mutant.old}\0{mutant.new}"
    return hashlib.sha256(text.encode()).digest(), mutant.start
