"""Attacks on every door of one server: the longest wait of a session on the Unix socket beside, and the memory.

Usage: ``python -m tests.attacks.doors [--json FILE] [NAME…]``. The exit status is 1 if a row breaks a promise: no
decision beside waits for more than 100 ms; the server needs at most 150 MB more than before the attack, and gives
them back, but for 20 MB, within a minute. `README.md` beside this file has a row for each door and a column for each
kind, and the reasons of the cells without a driver. The row ``nothing`` shows the waits that the machine makes.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from tests.attacks.crowd_attacks import CROWD_ATTACKS, use
from tests.attacks.door_attacks import DOOR_ATTACKS, Attack
from tests.attacks.form_attacks import FORM_ATTACKS
from tests.attacks.measure import Memory
from tests.attacks.observation_attacks import OBSERVATION_ATTACKS
from tests.attacks.record_attacks import RECORD_ATTACKS
from tests.attacks.signature_attacks import SIGNATURE_ATTACKS
from tests.attacks.target import Times, asking, served

_STALL: Final = 0.1
_MEMORY: Final = 150e6
_LEFT: Final = 20e6
_BEFORE: Final = 2.0
_AFTER: Final = 1.0
_MINUTE: Final = 60.0

ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "nothing": lambda _: time.sleep(4.0),
        **DOOR_ATTACKS,
        **OBSERVATION_ATTACKS,
        **SIGNATURE_ATTACKS,
        **CROWD_ATTACKS,
        **FORM_ATTACKS,
        **RECORD_ATTACKS,
    }
)


class Row(msgspec.Struct, frozen=True):
    """An attack.

    Attributes:
        attack: its name.
        before: the longest wait beside in the 2 s before it, in seconds.
        longest: the longest wait beside from its begin to a second after its end, in seconds.
        most: bytes of memory above those before it.
        given_back: seconds until all but 20 MB of them were given back.

    """

    attack: str
    before: float
    longest: float
    most: int
    given_back: float

    def breaks(self) -> Sequence[str]:
        """Name the promises that it breaks."""
        found = {"wait": self.longest > _STALL, "memory": self.most > _MEMORY, "return": self.given_back >= _MINUTE}
        return [name for name, broken in found.items() if broken]


def measure(name: str) -> Row:
    """Run an attack on a fresh server."""
    tls = name.startswith("TLS")
    with tempfile.TemporaryDirectory(prefix="pb-attack-") as scratch, served(Path(scratch), tls=tls) as target:
        with target.stack:
            use(target)
        with asking(target.addresses["socket"]) as times:
            time.sleep(_BEFORE)
            memory = Memory(target.pid)
            memory.start()
            begun = time.monotonic()
            with target.stack:
                ATTACKS[name](target)
            ended = time.monotonic()
            time.sleep(_AFTER)
            while memory.last - memory.first > _LEFT and time.monotonic() - ended < _MINUTE:
                time.sleep(_AFTER)
            memory.stop()
            given_back = time.monotonic() - ended
            waits = times()
        before = _longest(waits, begun - _BEFORE, begun)
        return Row(name, before, _longest(waits, begun, ended + _AFTER), memory.most - memory.first, given_back)


def _longest(waits: Times, start: float, end: float) -> float:
    return max((done - asked for asked, done in waits if done >= start and asked < end), default=0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each attack."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.doors", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.attacks if name not in ATTACKS]:
        parser.error(f"unknown attack {unknown[0]!r}; there are {', '.join(ATTACKS)}")
    rows = []
    for name in options.attacks or ATTACKS:
        rows.append(measure(name))
        Console(stderr=True).print(f"{name}: done", highlight=False)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    Console(width=120).print(_table(rows))
    return 1 if any(row.breaks() for row in rows) else 0


def _table(rows: Sequence[Row]) -> Table:
    table = Table("door and kind", "before, ms", "longest wait, ms", "MB above idle", "given back, s", "breaks")
    for row in rows:
        cells = (1e3 * row.before, 1e3 * row.longest, row.most / 1e6, row.given_back)
        table.add_row(row.attack, *(f"{cell:.0f}" for cell in cells), " ".join(row.breaks()))
    return table


if __name__ == "__main__":
    sys.exit(main())
