"""The contract of a message format, and the table of the formats."""

from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from policybridge_core.plugins import Table
from policybridge_serdes import Layout, TensorSpec, Values


class ParsedMessage(NamedTuple):
    """A message, parsed.

    Attributes:
        layout: the features as the message has them, all of fixed shape; the same object while they do not change.
        values: one record of it.
        packed: the record's bytes, if the message contains them.

    """

    layout: Layout
    values: Values
    packed: bytes | None = None


class Format(Protocol):
    """Parses messages and writes replies. One object for each compile: it may remember the latest message's layout.

    Attributes:
        refusal: a framed reply that makes a waiting compiler end.

    """

    refusal: bytes

    def read(self, message: bytes) -> ParsedMessage:
        """Parse an observation.

        Raises:
            InvalidError: the message is no observation in this format.
            TooLargeError: its description of the features is too long.

        """

    def reply(self, spec: TensorSpec, advice: npt.NDArray[np.generic]) -> bytes:
        """Write an advice, flat, of the type in ``spec``.

        Raises:
            InvalidError: the format cannot carry it.

        """


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
        NotFoundError: no format has that name.

    """
    return cast("type[Format]", FORMATS.load(name))()
