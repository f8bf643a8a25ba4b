"""Header blocks (HPACK, RFC 7541): read with the hpack library, written without compression, which needs no state."""

from collections.abc import Iterable
from typing import Final

from hpack import Decoder
from hpack.exceptions import HPACKError

from policybridge_server.grpc.http2.frames import Code, Http2Error

MAX_BLOCK: Final = 64 << 10
"""Bytes of a request's headers, packed and unpacked."""

Headers = tuple[tuple[str, str], ...]

_CACHED: Final = 64


class HeaderReader:
    """Reads the header blocks of one connection, in order.

    A client's calls repeat their headers, byte for byte once both sides have them in their tables: such a block is read
    once, as long as no other one changes the table.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_BLOCK)
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Give names and values; those of ``-bin`` stay base64, as they are on the wire.

        Raises:
            Http2Error: it cannot be read; what follows cannot either.

        """
        known = self._known.get(block)
        if known is not None:
            return known
        table = self._decoder.header_table
        before = list(table.dynamic_entries)
        try:
            read = self._decoder.decode(block, raw=True)
            headers: Headers = tuple((_text(name), _text(value)) for name, value in read)
        except (HPACKError, UnicodeDecodeError) as error:
            raise Http2Error(Code.COMPRESSION_ERROR, f"the headers cannot be read: {error}") from error
        if before != list(table.dynamic_entries) or len(self._known) >= _CACHED:
            self._known.clear()
        else:
            self._known[block] = headers
        return headers


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def write_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Write a header block; every field is a literal without indexing."""
    return b"".join(b"\0" + _string(name) + _string(value) for name, value in headers)


def _string(text: str) -> bytes:
    data = text.encode("latin-1")
    return _integer(len(data)) + data


def _integer(value: int) -> bytes:
    """Write an integer with a prefix of 7 bits (RFC 7541, section 5.1)."""
    if value < 127:
        return bytes((value,))
    value -= 127
    written = [127]
    while value >= 128:
        written.append(value % 128 + 128)
        value //= 128
    return bytes([*written, value])
