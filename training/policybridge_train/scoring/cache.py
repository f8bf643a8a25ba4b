"""What LLVM alone makes of a module is compiled once for each compiler, flags and module, and kept."""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from policybridge_train.compiling.result import CompileResult

_FORMAT: Final = 2
"""To be raised when `CompileResult` changes: files of another format are then not found."""


def default_folder() -> Path:
    """Give the folder of the cache where the user names none."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "policybridge" / "scores"


class Cache:
    """Results and objects in a folder.

    Several processes may use it at once: files are put in place whole, and their names tell their content. A file that
    is broken or missing is compiled again. A folder that cannot be written to only costs time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    def key(*parts: object) -> str:
        """Give the key of a compile from its parts: strings, numbers, and lists of them."""
        return hashlib.sha256(json.dumps([_FORMAT, *parts]).encode()).hexdigest()

    def get(self, key: str) -> tuple[CompileResult, Path] | None:
        """Give the result kept under a key, and the file of the object."""
        with suppress(OSError, ValueError):
            measured = msgspec.convert(json.loads(self._place(key, ".json").read_bytes()), CompileResult)
            file = self._place(measured.digest, ".o")
            if measured.ok and hashlib.sha256(file.read_bytes()).hexdigest() == measured.digest:
                return msgspec.structs.replace(measured, cached=True), file
        return None

    def put(self, key: str, measured: CompileResult, file: Path) -> None:
        """Keep a result and its object. Failures are not kept: they may be those of a busy machine."""
        if measured.ok:
            with suppress(OSError):
                self._write(self._place(measured.digest, ".o"), file.read_bytes())
                # json and not msgspec, because names of sections may have bytes that are no UTF-8.
                self._write(self._place(key, ".json"), json.dumps(msgspec.to_builtins(measured)).encode())

    def _place(self, name: str, ending: str) -> Path:
        # A digest that is no name of a file would be one of a hostile cache.
        return self._folder / name[:2] / f"{os.path.basename(name)}{ending}"  # noqa: PTH119 - of a text, not of a path

    def _write(self, target: Path, content: bytes) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=target.parent)
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
