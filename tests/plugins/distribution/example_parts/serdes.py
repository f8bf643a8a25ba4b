"""A SerDes that writes every message of the bitstream backwards."""

from policybridge_serdes import Codec, Layout, Values
from policybridge_serdes.bitstream import BitstreamSerDes


class ReversedSerDes:
    """The bitstream, the last byte first."""

    def __init__(self) -> None:
        self._bitstream = BitstreamSerDes()

    def codec(self, layout: Layout) -> "ReversedCodec":
        """Give the session form."""
        return ReversedCodec(self._bitstream.codec(layout))

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode the self-describing form."""
        return self._bitstream.encode(values, layout)[::-1]

    def decode(self, data: bytes) -> tuple[Layout, Values]:
        """Decode the self-describing form."""
        return self._bitstream.decode(data[::-1])


class ReversedCodec:
    """The session form."""

    def __init__(self, forward: Codec) -> None:
        self._forward = forward

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        return self._forward.encode(values)[::-1]

    def decode(self, data: bytes) -> Values:
        """Decode one record."""
        return self._forward.decode(data[::-1])
