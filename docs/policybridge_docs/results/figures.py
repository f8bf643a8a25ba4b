"""Figures in ``results/NAME.json``: how they are written, read and shown."""

import subprocess
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.digest import digest
from policybridge_core.errors import InvalidError
from policybridge_docs.links import ROOT
from policybridge_serdes import PolicyReference
from policybridge_server.repository import BUNDLED, Repository, version_digest

FOLDER: Final = ROOT / "results"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure.

    Attributes:
        value: in ``unit``.
        unit: such as ``%``, ``µs``, ``decisions/s`` or ``bytes``.
        digits: decimals that pages show; negative: they show tens (-1), hundreds (-2), ….
        signed: whether pages show ``+`` before a value above 0.
        low: of the 95 % interval, or of another range that the page names; absent for none.
        high: of the same.
        source: of a figure that others published: its URL or DOI, with page or table.

    """

    value: float
    unit: str = ""
    digits: int = 0
    signed: bool = False
    low: float | None = None
    high: float | None = None
    source: str = ""

    def number(self, *, absolute: bool = False) -> str:
        """Give the value as pages show it, without its unit."""
        return self._shown(abs(self.value), signed=False) if absolute else self._shown(self.value, signed=self.signed)

    @property
    def interval(self) -> str:
        """The interval as pages show it; empty for none."""
        if self.low is None or self.high is None:
            return ""
        return f" ({self._shown(self.low, signed=self.signed)} to {self._shown(self.high, signed=self.signed)})"

    def _shown(self, value: float, *, signed: bool) -> str:
        # Half up, so that two values one step apart never show the same.
        rounded = float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-self.digits), ROUND_HALF_UP))
        # Without a sign where the shown digits are all 0: "−0.00" would promise a decrease.
        sign = "+" if signed and rounded else ""
        return f"{rounded + 0.0:{sign},.{max(self.digits, 0)}f}".replace("-", "−")


class Results(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of figures.

    Attributes:
        command: measured them; empty for figures that others published.
        commit: of the tree, with ``-dirty`` if it had changes.
        date: of the measurement, UTC.
        machine: processor, cores, system, versions, and the load average over five minutes at the end.
        compiler: its version, where figures depend on one.
        policy: the digest of the bundled policy ``inliner``, where figures depend on it.
        figures: by key.

    """

    command: str = ""
    commit: str = ""
    date: str = ""
    machine: dict[str, str] = {}
    compiler: str = ""
    policy: str = ""
    figures: dict[str, Figure]


def bundled_digest(name: str) -> str:
    """Give the digest of the newest version of a bundled policy, as if it had no targets in its scope.

    The figures of one target stay those of the policy when another target is added.
    """
    stored = Repository([BUNDLED]).resolve(PolicyReference(name))
    scope = {label: values for label, values in stored.config.scope.items() if label != "target"}
    return version_digest(digest(stored.folder), msgspec.structs.replace(stored.config, scope=scope))


def commit() -> str:
    """Name the commit of the tree, with ``-dirty`` if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write_results(name: str, results: Results, folder: Path = FOLDER) -> None:
    """Write ``results/NAME.json``."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read_results(folder: Path = FOLDER) -> dict[str, Results]:
    """Read all files of a folder, by name.

    Raises:
        InvalidError: a file has another form.

    """
    results = {}
    for file in sorted(folder.glob("*.json")):
        try:
            results[file.stem] = msgspec.json.decode(file.read_bytes(), type=Results)
        except msgspec.DecodeError as error:
            raise InvalidError(f"{file} is no file of figures: {error}; write it by make results") from error
    return results
