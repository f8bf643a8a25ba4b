"""Checks of names, paths and files for the repository. They raise an error that names the cure."""

import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from policybridge_core.digest import LEFT_BY_PYTHON
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_core.session import check_length

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,199}")

_LONGEST_PATH: Final = 1000


@dataclass(frozen=True)
class Limits:
    """The limits of a version: its bytes (also with its archives unpacked) and its number of files."""

    bytes: int = 1 << 30
    files: int = 1000


def is_name(text: str) -> bool:
    """Whether a policy or an alias may have this name."""
    return _NAME.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Whether a version's folder may have this name."""
    return _NUMBER.fullmatch(text) is not None


def check_name(text: str) -> None:
    """Check the name of a policy.

    Raises:
        InvalidError: no policy may have it.

    """
    check_length(text, "the name of a policy")
    if not is_name(text):
        raise InvalidError(f"{text!a} is no name of a policy: up to 100 letters, digits, `.`, `_` and `-`")


def check_alias(text: str) -> None:
    """Check an alias that is to be set.

    Raises:
        InvalidError: no alias may have this name, or it is ``latest``.

    """
    check_length(text, "an alias")
    if not is_name(text) or text.isdecimal():
        raise InvalidError(f"{text!a} is no alias: up to 100 letters, digits, `.`, `_` and `-`, not digits alone")
    if text == "latest":
        raise InvalidError(
            "`latest` names the newest version by itself; publish a new one, roll back (`policies rollback`), or set"
            " another alias"
        )


def check_path(text: str) -> PurePosixPath:
    """Check the path of a file in a version, and give it.

    Raises:
        InvalidError: it is absolute, or has a ``..``, a backslash, a hidden part or an unusual character.

    """
    if len(text) > _LONGEST_PATH:
        raise InvalidError(f"a path in an artifact has at most {_LONGEST_PATH} characters, not {len(text)}")
    parts = text.split("/")
    if not all(_PART.fullmatch(part) for part in parts) or LEFT_BY_PYTHON in parts:
        raise InvalidError(
            f"{text!a} is no path of an artifact: relative, with `/`; parts of letters, digits and `_.+=@-` that do not"
            f" begin with `.`; no {LEFT_BY_PYTHON}"
        )
    return PurePosixPath(*parts)


def check_files(folder: Path, limits: Limits) -> None:
    """Check that a version's folder holds plain files only, which cannot lead out of it.

    Raises:
        PreconditionError: a symbolic link, a device, an archive that cannot be read.
        TooLargeError: more than ``limits``, on disk or unpacked.

    """
    total = unpacked = count = 0
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no plain file"
            raise PreconditionError(f"{path} is {kind}; a version's files must be in its own folder")
        count, total = count + 1, total + status.st_size
        unpacked += max(status.st_size, _unpacked(path))
        _check_limits(folder, limits, total, unpacked, count)


def _check_limits(folder: Path, limits: Limits, total: int, unpacked: int, count: int) -> None:
    if count > limits.files:
        raise TooLargeError(f"{folder} has more than {limits.files} files")
    if total > limits.bytes:
        raise TooLargeError(f"{folder} has more than {limits.bytes} bytes")
    if unpacked > limits.bytes:
        raise TooLargeError(f"{folder} has an archive of more than {limits.bytes} bytes when it is unpacked")


def _unpacked(file: Path) -> int:
    """Give the unpacked bytes that a zip archive (.pt, .pt2, .npz, …) declares; 0 for any other file."""
    try:
        with file.open("rb") as content:
            if not zipfile.is_zipfile(content):
                return 0
            with zipfile.ZipFile(content) as archive:
                return sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError) as error:
        # Any file may end like an archive. A backend that needs a real archive raises an error when it loads the file.
        if file.suffix in (".onnx", ".safetensors", ".tflite", ".pb", ".py"):
            return 0
        raise PreconditionError(f"{file} is a damaged archive: {error}") from error
