"""JSON files beside a policy's versions, each with a part of the policy's state."""

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from policybridge_core.errors import PreconditionError
from policybridge_server.repository.files import replace_file

_State = TypeVar("_State")


class StateFile(Generic[_State]):
    """A file that every policy's folder may have.

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
