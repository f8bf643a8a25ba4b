"""The SerDes contract, and the table of those that there are."""

from typing import Protocol, cast

from policybridge_core.plugins import Table
from policybridge_serdes.specs import Layout, Values


class Codec(Protocol):
    """The session form: both sides know the layout, so that a message carries values alone.

    ``decode(encode(values))`` gives the same bits. A codec may be used from one thread at a time.
    """

    def encode(self, values: Values) -> bytes:
        """Encode one record of the codec's layout."""
        ...

    def decode(self, data: bytes) -> Values:
        """Decode one record; where the layout is fixed it may be a read-only view of ``data``.

        Raises:
            InvalidError: the bytes are not a record of this layout.

        """
        ...


class SerDes(Protocol):
    """What turns values into bytes and back."""

    def codec(self, layout: Layout) -> Codec:
        """Give the session form for ``layout``; all that can be prepared is prepared here."""
        ...

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode one record with its layout: the self-describing form."""
        ...

    def decode(self, data: bytes) -> tuple[Layout, Values]:
        """Decode the self-describing form.

        Raises:
            InvalidError: the bytes are not one, or the record does not fit its own layout.

        """
        ...


SERDES = Table(
    kind="SerDes",
    group="policybridge.serdes",
    own={
        "bitstream": "policybridge_serdes.bitstream:BitstreamSerDes",
        "json": "policybridge_serdes.json:JsonSerDes",
        "protobuf": "policybridge_serdes.protobuf:ProtobufSerDes",
    },
)


def load_serdes(name: str) -> SerDes:
    """Make the SerDes called ``name``.

    Raises:
        NotFoundError: there is none of that name; the message lists those that there are.

    """
    return cast("type[SerDes]", SERDES.load(name))()
