"""Requests of one form: the same bytes except for their values.

A client sends the same policy, names, types and shapes with other values again and again. The parts that depend only on
the unchanged bytes are computed once, from the first request of the form. A later request is compared with the form
byte by byte, so that the result is the parser's. The tags and lengths of the wire format
(https://protobuf.dev/programming-guides/encoding/) are among the compared bytes.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from policybridge_serdes.protobuf_fields import fields
from policybridge_server.bounded import BoundedCache

_MOST_SIZES: Final = 64
_MOST_OF_ONE_SIZE: Final = 8
_MOST_FIXED_BYTES: Final = 1 << 14
_MOST_SPANS: Final = 256
"""With these limits all forms together take at most 8 MiB, and a request is compared with at most 8 forms."""

Span = tuple[int, int]
"""The begin and end of a value in the request."""

_Known = TypeVar("_Known")


def spans(data: bytes, path: Sequence[int], start: int = 0, end: int | None = None) -> Iterator[Span]:
    """Find the payloads of a ``bytes`` field in a serialized message that the parser has accepted.

    Args:
        data: the message.
        path: the numbers of the message fields that lead to the field, and its own.
        start: of the message in ``data``.
        end: of it; that of ``data`` by default.

    """
    for number, begin, stop in fields(data, start, len(data) if end is None else end):
        if number == path[0] and stop is not None:
            if len(path) > 1:
                yield from spans(data, path[1:], begin, stop)
            else:
                yield begin, stop


class _Form(Generic[_Known]):
    def __init__(self, data: bytes, values: Sequence[Span], known: _Known) -> None:
        edges = [0, *(edge for span in values for edge in span), len(data)]
        sizes = [end - start for start, end in itertools.pairwise(edges)]
        self.split = struct.Struct("".join(f"{size}s" for size in sizes)).unpack
        self.fixed = self.split(data)[::2]
        self.known = known


class Forms(Generic[_Known]):
    """The forms of the latest requests, each with a value. Their number and size are bounded."""

    def __init__(self) -> None:
        self._by_size: BoundedCache[int, BoundedCache[tuple[bytes, ...], _Form[_Known]]] = BoundedCache(_MOST_SIZES)

    def find(self, data: bytes) -> tuple[_Known, Sequence[bytes]] | None:
        """Return the value of the request's form, and the request's values; ``None`` for an unknown form."""
        forms = self._by_size.get(len(data))
        for entry in forms.entries() if forms else ():
            form = entry.value
            if data.startswith(form.fixed[0]):
                parts = form.split(data)
                if parts[::2] == form.fixed:
                    entry.used = True
                    return form.known, parts[1::2]
        return None

    def remember(self, data: bytes, values: Sequence[Span], known: _Known) -> None:
        """Keep a value for the form of ``data``, whose values are at the spans ``values``, in their order.

        A form that is too large to be kept is ignored.
        """
        fixed = len(data) - sum(end - start for start, end in values)
        if fixed > _MOST_FIXED_BYTES or len(values) > _MOST_SPANS:
            return
        forms = self._by_size.get(len(data))
        if forms is None:
            forms = BoundedCache(_MOST_OF_ONE_SIZE)
            self._by_size.put(len(data), forms)
        form = _Form(data, values, known)
        forms.put(form.fixed, form)
