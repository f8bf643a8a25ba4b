"""The contract of a message format, and the table of those that there are."""

from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from policybridge_core.plugins import Table
from policybridge_serdes import Layout, TensorSpec, Values


class ParsedMessage(NamedTuple):
    """What a message says.

    Attributes:
        layout: its features as they came, all of fixed shape; the same object as long as they look the same.
        values: one record of it.
        packed: the record's bytes, where the message has them.

    """

    layout: Layout
    values: Values
    packed: bytes | None = None


class Format(Protocol):
    """How messages are written. One for each compile: it remembers what the latest message looked like.

    Attributes:
        refusal: what makes a compiler end that waits for an answer, its length included.

    """

    refusal: bytes

    def read(self, message: bytes) -> ParsedMessage:
        """Read an observation.

        Raises:
            InvalidError: the message is none.
            TooLargeError: its description of the features is too long.

        """
        ...

    def reply(self, spec: TensorSpec, advice: npt.NDArray[np.generic]) -> bytes:
        """Write an advice, flat, of the type in ``spec``.

        Raises:
            InvalidError: the format cannot carry it.

        """
        ...


FORMATS = Table(
    kind="pipe format",
    group="policybridge.pipe_formats",
    own={
        "bytes": "policybridge_server.mlbridge.pipes.bytes_format:BytesFormat",
        "json": "policybridge_server.mlbridge.pipes.json_format:JsonFormat",
    },
)


def load_format(name: str) -> Format:
    """Make the format called ``name``.

    Raises:
        NotFoundError: there is none of that name.

    """
    return cast("type[Format]", FORMATS.load(name))()
