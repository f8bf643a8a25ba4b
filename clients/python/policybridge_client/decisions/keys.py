"""The keys of decisions. A key is by site, or by features if the compiler tells no site.

A key is the first 8 bytes of a SHA-256, as 16 hexadecimal digits. Neither kind changes with other parts of the module,
so a decision survives edits elsewhere.
"""

import hashlib
from collections import Counter
from typing import Final

from policybridge_client.decisions.text import to_bytes
from policybridge_serdes import ElementType, Signature, TensorSpec

_BYTES: Final = 8

_ELSEWHERE: Final = ("node_count", "edge_count", "callee_users", "inlining_default")
"""Features that change with other functions or other decisions."""

_OF_THE_CALLER: Final = "caller_"


def site_key(caller: str, origin: str, callee: str, number: int, occurrence: int) -> str:
    """Return the key of a site.

    Args:
        caller: the function that holds the call when LLVM asks.
        origin: the function that held it at the start of the pipeline.
        callee: the name of the called function at the start of the pipeline; empty for an indirect call.
        number: index of the call among those of this callee in the origin, from 0.
        occurrence: number of earlier requests with this caller, origin, callee and number in the compilation.

    """
    return _key(b"\0".join(map(to_bytes, (caller, origin, callee, str(number), str(occurrence)))))


def function_key(name: str) -> str:
    """Return the key of choices about a function's passes; of the empty name, that of choices for all functions."""
    return _key(to_bytes(name))


def _key(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[: 2 * _BYTES]


class FeaturesKeys:
    """Names the decisions of one compilation by their features, ``KEY.N``: the Nth, from 0, that has this key.

    The key covers the int64 features in LLVM's order, without those that change with other functions or with earlier
    decisions: ``node_count``, ``edge_count``, ``callee_users``, ``inlining_default`` and the caller's.

    Args:
        signature: the features that LLVM sends.

    """

    def __init__(self, signature: Signature) -> None:
        self._pieces = _own_pieces(signature)
        self._asked: Counter[str] = Counter()

    def next(self, observation: bytes) -> str:
        """Return the name of the next decision; ``observation`` are the bytes that LLVM sends for it."""
        key = _key(b"".join([observation[piece] for piece in self._pieces]))
        occurrence = self._asked[key]
        self._asked[key] += 1
        return f"{key}.{occurrence}"


def _own_pieces(signature: Signature) -> list[slice]:
    """Return the slices of an observation's bytes that the key covers; neighbours are merged, which is faster."""
    pieces: list[slice] = []
    offset = 0
    for spec in signature.features.specs:
        end = offset + spec.size
        if _is_own(spec):
            begin = pieces.pop().start if pieces and pieces[-1].stop == offset else offset
            pieces.append(slice(begin, end))
        offset = end
    return pieces


def _is_own(spec: TensorSpec) -> bool:
    fixed = spec.name not in _ELSEWHERE and not spec.name.startswith(_OF_THE_CALLER)
    return fixed and spec.type is ElementType.INT64
