"""Header blocks (HPACK, RFC 7541): read with the hpack library, written without compression, which needs no state."""

from collections.abc import Iterable
from typing import Final

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from policybridge_server.grpc.http2.frames import Code, Http2Error
from policybridge_server.grpc.http2.requests import RequestHeaders

MAX_BLOCK: Final = 16 << 10
"""Limit in bytes of a request's headers, packed and unpacked: that of gRPC's own library."""

_CACHED: Final = 16
_LARGEST_CACHED: Final = 1 << 10
"""Blocks of a connection that are read once, and the bytes of one: a client must not fill the memory with them."""


class HeaderReader:
    """Reads the header blocks of one connection, in order.

    A client's calls repeat their headers, byte for byte once both sides have them in their dynamic tables. Such a block
    is read once, as long as no other one changes the table or its size.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_BLOCK)
        self._known: dict[bytes, RequestHeaders] = {}

    def read(self, block: bytes) -> RequestHeaders:
        """Read a block; values of ``-bin`` stay in the wire's base64.

        Raises:
            Http2Error: it cannot be read, nor can later blocks.

        """
        known = self._known.get(block)
        if known is not None:
            return known
        before = self._table()
        try:
            read = self._decoder.decode(block, raw=True)
            headers = RequestHeaders([(_text(name), _text(value)) for name, value in read])
        except OversizedHeaderListError as error:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {MAX_BLOCK} bytes, unpacked") from error
        except HPACKError as error:
            raise Http2Error(Code.COMPRESSION_ERROR, f"the headers cannot be read: {error}") from error
        if before != self._table() or len(self._known) >= _CACHED:
            self._known.clear()
        elif len(block) <= _LARGEST_CACHED:
            self._known[block] = headers
        return headers

    def _table(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the whole state of the decoder."""
        table = self._decoder.header_table
        return table.maxsize, list(table.dynamic_entries)


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
