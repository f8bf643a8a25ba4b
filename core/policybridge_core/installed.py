"""Whether installed distributions add parts: told from their files, without importlib.metadata, which takes longer."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path


def may_extend(group: str) -> bool:
    """Whether a distribution may have entry points of ``group``; importlib.metadata says which, if any."""
    others = any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path)
    return others or any(_may_hold(Path(place), group.encode()) for place in sys.path)


def _may_hold(place: Path, group: bytes) -> bool:
    # Only importlib.metadata reads archives.
    return place.is_file() or any(group in text for text in _entry_points(place))


def _entry_points(folder: Path) -> Iterator[bytes]:
    """Give the text of each file of entry points in a folder of sys.path."""
    try:
        entries = [each for each in folder.iterdir() if each.name.lower().endswith(("dist-info", "egg-info"))]
    except OSError:
        return
    for entry in entries:
        # Most distributions have no entry points.
        with suppress(OSError):
            yield (entry / "entry_points.txt").read_bytes()
