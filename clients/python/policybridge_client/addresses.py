"""A list of servers, as one text: ``socket:/run/policybridge.sock,grpcs:policies.example:50051``."""

import re
from collections.abc import Container
from typing import Final

_NEXT: Final = re.compile(r",\s*([A-Za-z][A-Za-z0-9+.-]*):")


def split_addresses(text: str, schemes: Container[str]) -> list[str]:
    """Give the addresses of a list: after a comma, each begins with one of ``schemes`` and a colon.

    Any other comma is part of an address: of a path, or of ``,serdes=NAME``.
    """
    addresses, begin = [], 0
    for match in _NEXT.finditer(text):
        if match[1] in schemes:
            addresses.append(text[begin : match.start()])
            begin = match.start(1)
    return [*addresses, text[begin:]]
