"""Values and files in Ray's object store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import ray

from policybridge_train.farms.contract import Machine

T = TypeVar("T")


@dataclass(frozen=True)
class StoredValue(Generic[T]):
    """A value in the object store; each node fetches it once."""

    reference: "ray.ObjectRef[T]"

    def at(self, _: Machine) -> T:
        """Fetch it."""
        value: T = ray.get(self.reference)
        return value


@dataclass(frozen=True)
class StoredFile:
    """A file whose content is in the object store; each node writes it once.

    Attributes:
        name: of the file, without its folder.
        digest: SHA-256 of the content, in hex.

    """

    name: str
    digest: str
    content: StoredValue[bytes]

    def at(self, machine: Machine) -> Path:
        """Give the file of a machine."""
        return machine.file(self.name, self.digest, self.content)
