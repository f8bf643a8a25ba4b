"""Sessions whose client decides by a form of the version: their reports, and the form itself, on the Unix socket."""

import json
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from policybridge_bench.network import SIGNATURE, observations
from policybridge_serdes import ElementType, Signature, TensorSpec
from policybridge_serdes.interactive import MOST_DECIDED, header_line
from tests.attacks.door_attacks import LARGE, Attack
from tests.attacks.target import Target, repeat, together, until

_SECONDS: Final = 4.0
_HELLO: Final = b'{"policybridge":1,"policy":"network","evaluate":"here"}\n'
_HEADER: Final = header_line(SIGNATURE)
_LARGE_HEADER: Final = header_line(
    Signature.of([*SIGNATURE.features.specs, TensorSpec("large", ElementType.INT64, (LARGE // 8,))], SIGNATURE.advice)
)


def decided(count: int) -> bytes:
    """Make a report of so many decisions of the network."""
    advices = bytes(SIGNATURE.advice_layout.size * count)
    rows = b"".join(observations(count, 1))
    return b'{"decided":%d}\n' % count + rows + advices + b"\n"


def _sent(target: Target, *parts: bytes) -> None:
    target.send("socket", _HELLO, *parts)


def open_session(target: Target) -> dict[str, Any]:
    """Open sessions until the version has its form; give what the server said of the last one, which stays open."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        opened: dict[str, Any] = json.loads(target.send("socket", _HELLO).makefile("rb").readline())
        if opened.get("forms"):
            return opened
    raise AssertionError("the policy has no form")


def _open(target: Target) -> bytes:
    """Open a session until its version has its form; give the digest."""
    digest: str = open_session(target)["forms"][""]["digest"]
    return digest.encode()


def _flood(target: Target, message: bytes) -> None:
    """Send a report again and again for some seconds, as fast as the server takes it."""
    made = target.send("socket", _HELLO, _HEADER)
    until(_SECONDS, lambda: made.sendall(message))()


def _count(target: Target) -> None:
    _open(target)
    _flood(target, decided(MOST_DECIDED))


def _repeat(target: Target) -> None:
    _open(target)
    _flood(target, decided(1) * 256)


def _two(target: Target) -> None:
    _open(target)
    together(*[partial(_flood, target, decided(MOST_DECIDED))] * 8)


def _size(target: Target) -> None:
    """Announce reports of as many observations as may be, each of the allowed size."""
    _open(target)
    piece = bytes(LARGE // 2)
    repeat(4, lambda: _sent(target, _LARGE_HEADER, b'{"decided":%d}\n' % MOST_DECIDED, piece, piece))


def _half(target: Target) -> None:
    _open(target)
    message = decided(MOST_DECIDED)
    repeat(300, lambda: _sent(target, _HEADER, message[: len(message) // 2]))


def _lie(target: Target) -> None:
    _open(target)
    for line in (b'{"decided":%d}\n' % (1 << 60), b'{"decided":-1}\n', b'{"decided":2}\n' + decided(1), b"{}\n"):
        target.asked("socket", _HELLO, _HEADER, line)
    for digest in (b"sha256:" + b"0" * 64, b"../secret", b"x" * 900_000):
        target.asked("socket", _HELLO, b'{"form":"%s"}\n' % digest)


def _unread(target: Target) -> None:
    """Ask for the form in many sessions, and read no answer."""
    asked = b'{"form":"%s"}\n' % _open(target)
    repeat(400, lambda: _sent(target, asked))


FORM_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "decided size": _size,
        "decided depth": lambda target: target.asked(
            "socket", _HELLO, _HEADER, b'{"decided":' + b"[" * 900_000 + b"\n"
        ),
        "decided count": _count,
        "decided half": _half,
        "decided repeat": _repeat,
        "decided lie": _lie,
        "decided two at once": _two,
        "form repeat": _unread,
    }
)
