"""The message of a status in HTTP/2: percent-encoded (grpc/doc/PROTOCOL-HTTP2.md), within the size clients accept.

Clients of gRPC's own library take 8 KiB of trailers. A byte that is not plain ASCII needs three of them.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

LONGEST: Final = 4000
"""Bytes of a message, encoded."""

_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that need no escape."""

_CUT: Final = " …"
_CUT_ESCAPE: Final = re.compile("%.?$")


def percent_encoded(text: str) -> str:
    """Encode a message; a message that is too long is cut."""
    return quote(shortened(text), safe=_PLAIN, errors="replace")


def shortened(text: str) -> str:
    """Return the message, cut if it is too long."""
    # A character needs at least one byte.
    encoded = quote(text[: LONGEST + 1], safe=_PLAIN, errors="replace")
    if len(encoded) <= LONGEST:
        return text
    cut = encoded[: LONGEST - len(quote(_CUT, safe=_PLAIN))]
    return unquote(_CUT_ESCAPE.sub("", cut), errors="ignore") + _CUT
