"""Sessions that go on: their client sends the record again that a server did not acknowledge."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from policybridge_core.errors import InvalidError, PreconditionError, UnavailableError
from policybridge_core.session import Resumption
from policybridge_serdes import PolicyVersion
from policybridge_serdes.interactive import Decided
from policybridge_server.engine.forms import Forms

_ID: Final = re.compile("[0-9a-f]{32}")


def check_resumption(resumes: Resumption, policy: PolicyVersion, forms: Forms | None) -> None:
    """Check that the record may be one of this version.

    Raises:
        InvalidError: there is no session of such an id.
        PreconditionError: another version decided, or the version has no form by which a client could.
        UnavailableError: its forms are still being made.

    """
    if _ID.fullmatch(resumes.session) is None:
        raise InvalidError(f"{resumes.session!r} is no session's id")
    if resumes.digest != policy.digest:
        raise PreconditionError(
            f"{policy.name}@{policy.version} has the digest {policy.digest}, and the record is of {resumes.digest}"
        )
    if forms is None:
        raise UnavailableError(f"the forms of {policy.name}@{policy.version} are being made; send the record later")


class HeldDecisions:
    """Leaves out the decisions of a record that the ledger holds.

    Args:
        held: their number; they are the first ones.

    """

    def __init__(self, held: int) -> None:
        self._left = held

    def rest(self, decided: Decided, sizes: Sequence[int]) -> Decided:
        """Give the decisions that the ledger lacks, perhaps none.

        Args:
            decided: the next decisions, all of their bytes.
            sizes: bytes of one element of each column.

        """
        first = min(self._left, decided.count)
        self._left -= first
        if not first:
            return decided
        count, pieces, begin = decided.count - first, list[bytes](), 0
        for size in sizes:
            end = begin + decided.count * size
            pieces.append(decided.payload[begin + first * size : end])
            begin = end
        time = decided.nanoseconds * count // decided.count
        return structs.replace(decided, count=count, nanoseconds=time, payload=b"".join(pieces))

    def check_all(self) -> None:
        """Check that the record has at least the decisions that the ledger holds.

        Raises:
            InvalidError: it has fewer.

        """
        if self._left:
            raise InvalidError(f"the ledger holds {self._left} decisions of the session more than this record has")
