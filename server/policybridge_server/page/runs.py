"""The training runs on the page. Each trainer writes its progress into a file in its run's folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from policybridge_server.repository.files import replace_file

FILE: Final = "run.json"
"""Name of the progress file in a run's folder."""

_MOST: Final = 20
"""Number of runs that are shown at most, the latest first."""

_BYTES: Final = 4 << 20
"""Size limit of a progress file; a larger file is not read."""


class ShownIteration(msgspec.Struct, frozen=True):
    """A version that a trainer has published; the first one decides as the compiler does.

    Attributes:
        number: the iteration's number, from 0.
        version: the version's number in the run's repository.
        compiles: the number of modules compiled since the run began.
        seconds: wall seconds since the run began.
        changes: measure → change of the sum over the validation projects since the first iteration, as a fraction.

    """

    number: int
    version: int
    compiles: int
    seconds: float
    changes: Mapping[str, float]


class ShownProject(msgspec.Struct, frozen=True):
    """A project's sum of one measure: ``before`` by the compiler's own decisions, ``after`` by the best version."""

    project: str
    measure: str
    before: float
    after: float


class ShownRun(msgspec.Struct, frozen=True):
    """A training run, as `FILE` holds it in JSON.

    Attributes:
        title: text for people.
        facts: other properties, by name.
        iterations: the finished iterations.
        best: the number of the version that is best on the validation projects.
        projects: the validation projects, compiled by the best version.

    """

    title: str
    facts: Mapping[str, str]
    iterations: Sequence[ShownIteration]
    best: int
    projects: Sequence[ShownProject]


def write_run(run: ShownRun, folder: Path) -> None:
    """Write `FILE` atomically."""
    replace_file(folder / FILE, msgspec.json.encode(run))


def shown_runs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Read the runs in these folders and in their direct subfolders, the latest first. This blocks.

    A file that cannot be read gives a run with an ``error``.
    """
    files = sorted(((file.stat().st_mtime, file) for folder in folders for file in _files(folder)), reverse=True)
    return [_shown(file, changed) for changed, file in files[:_MOST]]


def _files(folder: Path) -> Iterator[Path]:
    yield from (file for file in (folder / FILE, *folder.glob(f"*/{FILE}")) if file.is_file())


def _shown(file: Path, changed: float) -> dict[str, Any]:
    about: dict[str, Any] = {"name": file.parent.name, "changed": changed}
    try:
        if file.stat().st_size > _BYTES:
            return {**about, "error": f"it is larger than {_BYTES:,} bytes"}
        return {**about, "run": msgspec.json.decode(file.read_bytes(), type=ShownRun)}
    except (OSError, msgspec.MsgspecError) as error:
        return {**about, "error": f"{FILE} cannot be read: {type(error).__name__}"}
