"""Records of earlier sessions, which clients send again: giant, half, by the thousand, and of sessions of others."""

import json
from collections.abc import Mapping
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Final

from policybridge_bench.network import SIGNATURE
from policybridge_serdes.interactive import MOST_DECIDED, header_line
from tests.attacks.door_attacks import Attack
from tests.attacks.form_attacks import decided, open_session
from tests.attacks.target import Target, repeat, together, until

_SECONDS: Final = 4.0
_HEADER: Final = header_line(SIGNATURE)
_END: Final = b'{"end":true}\n'


def _first(target: Target, session: str) -> bytes:
    """Make the first line of a record of a session of that name."""
    opened = open_session(target)
    line = {"policybridge": 1, "resume": session, "options": {}, "labels": {}, "context": "main.c"}
    return json.dumps(line | {key: opened[key] for key in ("policy", "version", "digest")}).encode() + b"\n"


def _named(target: Target, first: bytes, session: str, *parts: bytes) -> None:
    """Send a record, with the first line of another one, and wait for its answer."""
    line = json.dumps(json.loads(first) | {"resume": session}).encode() + b"\n"
    target.asked("socket", line, *parts)


def _flood(target: Target) -> None:
    """Begin a session in the ledger by each record, as fast as the server takes them."""
    first, numbers = _first(target, f"{0:032x}"), count(1)
    until(_SECONDS, lambda: _named(target, first, f"{next(numbers):032x}", _HEADER, decided(1), _END))()


def _repeat(target: Target) -> None:
    """Send one record again and again: the ledger has its decisions already."""
    record = (_first(target, f"{1 << 64:032x}"), _HEADER, decided(MOST_DECIDED), _END)
    until(_SECONDS, lambda: target.asked("socket", *record))()


def _two(target: Target) -> None:
    """Send the record of one session from eight clients at the same time."""
    record = (_first(target, f"{2 << 64:032x}"), _HEADER, *[decided(MOST_DECIDED)] * 4, _END)
    together(*[until(_SECONDS, partial(target.asked, "socket", *record))] * 8)


def _size(target: Target) -> None:
    """Send records that do not end."""
    first = _first(target, f"{3 << 64:032x}")
    message = decided(MOST_DECIDED)
    repeat(2, lambda: target.asked("socket", first, _HEADER, *[message] * 200))


def _half(target: Target) -> None:
    first = _first(target, f"{4 << 64:032x}")
    message = decided(MOST_DECIDED)
    repeat(300, lambda: target.send("socket", first, _HEADER, message[: len(message) // 2]))


def _lie(target: Target) -> None:
    """Name sessions that others have, that run, and that there cannot be; say other numbers than come."""
    first = _first(target, f"{5 << 64:032x}")
    running = str(open_session(target)["session"])
    for name in (running, "..", "x" * 900_000, f"{6 << 64:032x}\n"):
        _named(target, first, name, _HEADER, decided(1), _END)
    for message in (b'{"decided":%d}\n' % (1 << 60), b'{"decided":3}\n' + decided(1), b'{"observation":0}\n', b"{}\n"):
        target.asked("socket", first, _HEADER, message, _END)


RECORD_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "record size": _size,
        "record depth": lambda target: target.asked("socket", b'{"policybridge":1,"resume":' + b"[" * 900_000 + b"\n"),
        "record count": _flood,
        "record half": _half,
        "record repeat": _repeat,
        "record lie": _lie,
        "record two at once": _two,
    }
)
