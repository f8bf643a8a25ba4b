"""The best decisions of a search for speed, in a file beside the store: an interrupted search goes on from them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from policybridge_train.compiling.result import as_utf8
from policybridge_train.tuning.flips import Decided


class _File(msgspec.Struct, frozen=True):
    key: str
    decided: dict[str, Decided]


class Kept:
    """Decisions by module, in a file. It is a cache: without it, a search begins with LLVM's own decisions.

    Args:
        path: the file.
        key: of the program, its modules and its run; decisions for others are not given.

    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = as_utf8(key)

    def read(self, modules: Iterable[str]) -> Mapping[str, Decided]:
        """Give the decisions of modules; none if there are none for this key."""
        with suppress(OSError, msgspec.DecodeError):
            file = msgspec.msgpack.decode(self._path.read_bytes(), type=_File)
            if file.key == self._key:
                return {name: file.decided[as_utf8(name)] for name in modules if as_utf8(name) in file.decided}
        return {}

    def write(self, decided: Mapping[str, Decided]) -> None:
        """Write decisions in the place of earlier ones.

        Raises:
            OSError: they cannot be written; the earlier ones stand.

        """
        known = {as_utf8(name): its for name, its in decided.items()}
        partial = self._path.with_name(f"{self._path.name}.new")
        partial.write_bytes(msgspec.msgpack.encode(_File(self._key, known)))
        partial.replace(self._path)

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
