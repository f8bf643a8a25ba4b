"""The keys of decisions: by site, and by features where the compiler does not tell the site.

A key is the first 8 bytes of a SHA-256, as 16 hexadecimal digits. Both kinds do not change when something else in the
module does, so that a decision survives edits elsewhere.
"""

import hashlib
from collections import Counter
from typing import Final

from policybridge_client.decisions.names import to_bytes
from policybridge_serdes import ElementType, Signature, TensorSpec

_BYTES: Final = 8

_ELSEWHERE: Final = ("node_count", "edge_count", "callee_users", "inlining_default")
"""Features that other functions change, or other decisions."""

_OF_THE_CALLER: Final = "caller_"


def site_key(caller: str, origin: str, callee: str, number: int, occurrence: int) -> str:
    """Return the key of a site.

    Args:
        caller: the function that holds the call when LLVM asks.
        origin: the function that held it at the start of the pipeline.
        callee: the name of the called function at the start of the pipeline; empty for an indirect call.
        number: which call of this callee in the origin, from 0.
        occurrence: how often a call of this caller, origin, callee and number was asked before in the compilation.

    """
    return _key(b"\0".join(map(to_bytes, (caller, origin, callee, str(number), str(occurrence)))))


def _key(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[: 2 * _BYTES]


class FeaturesKeys:
    """Names the decisions of one compilation by their features, ``KEY.N``: the Nth, from 0, that has this key.

    The key is of the int64 features in LLVM's order, but for those that change with other functions or with earlier
    decisions: ``node_count``, ``edge_count``, ``callee_users``, ``inlining_default`` and the caller's.

    Args:
        signature: the features that LLVM sends.

    """

    def __init__(self, signature: Signature) -> None:
        self._pieces = _own_pieces(signature)
        self._asked: Counter[str] = Counter()

    def next(self, observation: bytes) -> str:
        """Return the name of the next decision, which LLVM asks with the bytes of ``observation``."""
        key = _key(b"".join([observation[piece] for piece in self._pieces]))
        occurrence = self._asked[key]
        self._asked[key] += 1
        return f"{key}.{occurrence}"


def _own_pieces(signature: Signature) -> list[slice]:
    """Return the parts of an observation's bytes that the key is of; neighbours are one, because that is faster."""
    found: list[slice] = []
    offset = 0
    for spec in signature.features.specs:
        end = offset + spec.size
        if _is_own(spec):
            begin = found.pop().start if found and found[-1].stop == offset else offset
            found.append(slice(begin, end))
        offset = end
    return found


def _is_own(spec: TensorSpec) -> bool:
    fixed = spec.name not in _ELSEWHERE and not spec.name.startswith(_OF_THE_CALLER)
    return fixed and spec.type is ElementType.INT64
