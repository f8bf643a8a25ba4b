"""Copies of archives in which some objects are others."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Ended, compile_by

_ARCHIVERS: Final = ("llvm-ar", "ar")
_THIN: Final = b"!<thin>"


def changed_archive(
    archive: Path, own: Mapping[Path, Path], members: Iterable[Path], place: Path, limits: Limits
) -> str:
    """Make a copy of an archive with changed objects in it.

    Args:
        archive: a thin one has an ordinary copy.
        own: by object: the changed one.
        members: the archive's objects that are changed, each of another name.
        place: the folder of the copy.
        limits: of the archiver.

    Raises:
        PreconditionError: it cannot be copied.

    """
    place.mkdir(exist_ok=True)
    copy = place / "copy.a"
    with archive.open("rb") as file:
        is_thin = file.read(len(_THIN)) == _THIN
    made = _thick(archive, own, copy, limits) if is_thin else _replaced(archive, members, own, copy, limits)
    if not made.ok:
        raise PreconditionError(f"{archive} cannot be changed: {made.failure}")
    return str(copy)


def _replaced(archive: Path, members: Iterable[Path], own: Mapping[Path, Path], copy: Path, limits: Limits) -> Ended:
    shutil.copyfile(archive, copy)
    for path in members:
        shutil.copyfile(own[path], copy.parent / path.name)
    return compile_by([_archiver(), "r", str(copy), *(str(copy.parent / path.name) for path in members)], limits)


def _thick(archive: Path, own: Mapping[Path, Path], copy: Path, limits: Limits) -> Ended:
    """Make an ordinary archive of a thin one, which has only its members' paths (Meson's are thin)."""
    listed = copy.with_name("members")
    listing = compile_by([_archiver(), "t", str(archive)], limits, stdout=listed)
    if not listing.ok:
        return listing
    copy.unlink(missing_ok=True)
    paths = [Path(os.path.realpath(line)) for line in os.fsdecode(listed.read_bytes()).splitlines()]
    # Added, not replaced: members may have one name.
    return compile_by([_archiver(), "qcs", str(copy), *(str(own.get(path, path)) for path in paths)], limits)


def _archiver() -> str:
    for name in _ARCHIVERS:
        if path := shutil.which(name):
            return path
    raise NotFoundError("there is no ar on PATH, which changes archives: install binutils")
