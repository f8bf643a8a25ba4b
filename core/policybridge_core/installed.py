"""The installed distributions, read from their files: importlib.metadata takes longer."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_VERSION: Final = re.compile(rb"^Version: (\S+)", re.MULTILINE)


def may_extend(group: str) -> bool:
    """Whether a distribution may have entry points of ``group``; importlib.metadata says which, if any."""
    others = any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path)
    return others or any(_may_hold(Path(place), group.encode()) for place in sys.path)


def find_version(distribution: str) -> str | None:
    """Give the version of a wheel that is installed in a folder; of others, importlib.metadata tells."""
    begin = f"{distribution.replace('-', '_')}-"
    for place in map(Path, sys.path):
        for entry in _described(place):
            if entry.name.startswith(begin) and (found := _VERSION.search(_read(entry / "METADATA"))):
                return found[1].decode()
    return None


def _may_hold(place: Path, group: bytes) -> bool:
    # Only importlib.metadata reads archives.
    return place.is_file() or any(group in _read(each / "entry_points.txt") for each in _described(place))


def _described(folder: Path) -> Iterator[Path]:
    """Give the folders of metadata in a folder of sys.path."""
    with suppress(OSError):
        yield from (each for each in folder.iterdir() if each.name.lower().endswith(("dist-info", "egg-info")))


def _read(file: Path) -> bytes:
    # Most distributions have no entry points.
    with suppress(OSError):
        return file.read_bytes()
    return b""
