"""Folders that a build removed: its commands are repeated in them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def standing(folders: Iterable[Path]) -> Iterator[None]:
    """Make folders again that a build removed, empty, for the block: relative paths of commands lead through them.

    pip removes the folder in which CMake or Meson compiles the sources of the project. A folder that cannot be made
    stays away.
    """
    with ExitStack() as held:
        for folder in folders:
            with suppress(OSError):
                for missing in _missing(folder):
                    missing.mkdir(mode=0o700)
                    held.callback(_remove, missing)
        yield


def _missing(folder: Path) -> list[Path]:
    """Give the folders of a path that are not there, the outermost first."""
    return [each for each in reversed((folder, *folder.parents)) if not each.exists()]


def _remove(folder: Path) -> None:
    # Another program may have put files there, or may have removed it.
    with suppress(OSError):
        folder.rmdir()
