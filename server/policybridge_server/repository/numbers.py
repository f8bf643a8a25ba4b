"""``DIR/<policy>/numbers.json``: the numbers that a policy has given to versions, in this repository and before."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar
from uuid import uuid4

import msgspec

from policybridge_core.errors import PreconditionError
from policybridge_server.repository.files import replace_file

MOST_SKIPPED: Final = 10_000
"""Numbers that a replica may make a leader skip with one version."""

MOST_KEPT: Final = 100
"""Versions of a policy that a leader remembers its replicas to keep."""

LONGEST_EPOCH: Final = 64
"""Characters."""

_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")

_State = TypeVar("_State")


class StateFile(Generic[_State]):
    """A JSON file beside a policy's versions, with a part of the policy's state.

    Args:
        name: of the file.
        kind: the type of its content.
        without: the consequence of its removal, which the message about an unusable file states.

    """

    def __init__(self, name: str, kind: type[_State], without: str) -> None:
        self.name = name
        self._kind = kind
        self._without = without

    def read(self, policy: Path) -> _State | None:
        """Read the file of the policy in this folder; ``None`` without such a file.

        Raises:
            PreconditionError: the file cannot be used.

        """
        file = policy / self.name
        if not file.is_file():
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=self._kind)
        except msgspec.DecodeError as error:
            raise PreconditionError(f"{file}: {error}; without this file {self._without}") from error

    def write(self, policy: Path, state: _State) -> None:
        """Replace the file of the policy in this folder, all at once and durably."""
        replace_file(policy / self.name, self.encode(state))

    def encode(self, state: _State) -> bytes:
        """Give the content of the file."""
        return msgspec.json.format(msgspec.json.encode(state)) + b"\n"


def is_digest(text: str) -> bool:
    """Whether ``text`` is a version's digest."""
    return _DIGEST.fullmatch(text) is not None


class Numbers(msgspec.Struct, frozen=True):
    """The version numbers that a policy has used; no number is given to two versions.

    A repository that is restored from an older copy does not know the versions that were published since. So each copy
    has an epoch of its own, which replicas compare with the epoch of their versions.

    Attributes:
        epoch: of the repository.
        highest: the highest number that was given, also to a version that is retired.
        earlier: epoch before this one → the highest number at its end, the oldest epoch first.
        dropped: epoch → numbers beyond that whose versions replicas are to retire.
        folder: inode of the policy's folder; a copy has another one.

    """

    epoch: str
    highest: int
    earlier: dict[str, int] = {}
    dropped: dict[str, list[int]] = {}
    folder: int = 0

    def had(self, number: int, epoch: str) -> bool:
        """Whether the repository has, or had, the version that got this number in ``epoch``."""
        last = self.highest if epoch == self.epoch else self.earlier.get(epoch, 0)
        return number <= last or number in self.dropped.get(epoch, ())

    def epoch_of(self, number: int) -> str:
        """Give the epoch in which a version of the repository got its number."""
        return next((epoch for epoch, last in self.earlier.items() if number <= last), self.epoch)

    def next_epoch(self, given: int, highest: int) -> "Numbers":
        """Begin another epoch.

        Args:
            given: the highest number that the repository itself has given.
            highest: the highest number that it must not give again.

        """
        return Numbers(uuid4().hex, max(given, highest), {**self.earlier, self.epoch: given}, self.dropped, self.folder)


NUMBERS: Final = StateFile("numbers.json", Numbers, "numbers may be given again")
"""Missing until a server that may publish has served the policy."""


def begin_epoch(policy: Path, numbers: Iterable[int], known: Numbers | None) -> Numbers:
    """Read the used numbers of the policy in this folder; another epoch begins if the folder is a copy.

    Raises:
        OSError: the folder cannot be written.

    """
    folder, given = policy.stat().st_ino, max([0, *numbers])
    if known is not None and known.folder == folder:
        return known
    if known is None:
        now = Numbers(uuid4().hex, given, folder=folder)
    else:
        given = max(given, known.highest)
        now = msgspec.structs.replace(known.next_epoch(given, given), folder=folder)
    NUMBERS.write(policy, now)
    return now


class Origin(msgspec.Struct, frozen=True):
    """Of a version at a replica: the leader's epoch of its number, and the digest of its files."""

    epoch: str
    files: str


class Taken(msgspec.Struct, frozen=True):
    """``taken.json`` in a replica's copy: the versions that it took, and those that its leader never had."""

    versions: Mapping[int, Origin] = {}
    kept: tuple[int, ...] = ()


TAKEN: Final = StateFile("taken.json", Taken, "the versions are taken anew")
