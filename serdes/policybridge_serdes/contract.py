"""The SerDes contract, and the table that names every SerDes."""

from typing import Any, Protocol, cast

from policybridge_core.plugins import Table
from policybridge_serdes.limits import UNLIMITED, Buffer, MessageLimits
from policybridge_serdes.specs import Layout, Values


class Codec(Protocol):
    """Encodes and decodes the session form: both sides know the layout, so a message carries only values.

    ``decode(encode(values))`` gives the same bits. A codec may be used from one thread at a time.
    """

    def encode(self, values: Values) -> bytes:
        """Encode one record of the codec's layout."""
        ...

    def decode(self, data: bytes) -> Values:
        """Decode one record. If the layout is fixed, the record may be a read-only view of ``data``.

        Raises:
            InvalidError: the bytes are not a record of this layout.

        """
        ...


class SerDes(Protocol):
    """Turns values into bytes and back."""

    def codec(self, layout: Layout) -> Codec:
        """Make the codec for ``layout``. Work that depends only on the layout is done here, once per session."""
        ...

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode one record with its layout: the self-describing form."""
        ...

    def decode(self, data: bytes) -> tuple[Layout, Values]:
        """Decode the self-describing form.

        Raises:
            InvalidError: the bytes are not in this form, or the record does not fit the layout before it.

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
"""The SerDes, by the names that clients use."""


def readable(reader: Codec | SerDes, data: Buffer) -> bytes:
    """Give ``data`` as ``reader`` decodes it: own readers, which have ``takes_views``, read a view without a copy."""
    return cast("bytes", data) if getattr(reader, "takes_views", False) else bytes(data)


def decode_view(codec: Codec, data: Buffer) -> Values:
    """Decode one record by ``codec``; see `readable`.

    Raises:
        InvalidError: the bytes are not a record of the codec's layout.

    """
    return codec.decode(readable(codec, data))


class LimitedSerDes:
    """Base of a SerDes that is made with limits; any other is made without arguments."""

    def __init__(self, limits: MessageLimits = UNLIMITED) -> None:
        self._limits = limits


def load_serdes(name: str, limits: MessageLimits = UNLIMITED) -> SerDes:
    """Make the SerDes called ``name``. A `LimitedSerDes` refuses messages beyond ``limits``.

    Raises:
        NotFoundError: no SerDes has this name; the message lists the known names.

    """
    kind: Any = SERDES.load(name)
    made = kind(limits) if isinstance(kind, type) and issubclass(kind, LimitedSerDes) else kind()
    return cast("SerDes", made)
