"""A version in the making: a hidden folder on the file system where it will be, which one rename puts into place."""

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from policybridge_core.digest import digest, version_files
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_server.repository.checks import Limits, check_files, check_path
from policybridge_server.repository.config import POLICY_TOML
from policybridge_server.repository.files import PUBLISHING, hidden, remove_folder, sync

FIRST: Final = "1"


class Staging:
    """Takes a version's files. For one thread at a time.

    Args:
        parent: the policy's folder; for a new policy, the repository's.
        limits: of what it takes.
        config: of a new policy: the text of its ``policy.toml``; the version is its first.

    Attributes:
        folder: holds the version's files.

    """

    def __init__(self, parent: Path, limits: Limits, config: str = "") -> None:
        self._limits = limits
        self._root = hidden(parent, PUBLISHING)
        self.folder = self._root / FIRST if config else self._root
        self.folder.mkdir(parents=True)
        if config:
            (self._root / POLICY_TOML).write_text(config)
        self._sizes: dict[PurePosixPath, int] = {}
        self._file: BinaryIO | None = None

    def write(self, path: str, data: bytes) -> None:
        """Take a piece of a file; the pieces of one come one after the other.

        Raises:
            InvalidError: an impossible path, or a file that was finished already.
            TooLargeError: more than the limits.

        """
        relative = check_path(path)
        if self._file is None or relative != next(reversed(self._sizes)):
            self._begin(relative)
        self._sizes[relative] += len(data)
        if sum(self._sizes.values()) > self._limits.bytes:
            raise TooLargeError(f"more than {self._limits.bytes} bytes; the operator allows no more")
        if self._file is not None:
            self._file.write(data)

    def _begin(self, path: PurePosixPath) -> None:
        self._end()
        if path in self._sizes:
            raise InvalidError(f"{path} came already; the pieces of one file come one after the other")
        if len(self._sizes) == self._limits.files:
            raise TooLargeError(f"more than {self._limits.files} files; the operator allows no more")
        try:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / path).open("xb")
        except (FileExistsError, NotADirectoryError):
            raise InvalidError(f"{path} is a file and a folder") from None
        self._sizes[path] = 0

    def _end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def link(self, base: Path) -> None:
        """Take the files of the version in the folder ``base``; the disk holds them once, where it can."""
        for file in version_files(base):
            target = self.folder / file.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)
            except OSError:
                shutil.copyfile(file, target)

    def seal(self) -> str:
        """Bring everything to the disk itself, and give the digest.

        Raises:
            PreconditionError: there is nothing, or a file that may not be.
            TooLargeError: more than the limits, when it is unpacked.

        """
        self._end()
        files = version_files(self.folder)
        if not files:
            raise PreconditionError("a version has at least one file")
        check_files(self.folder, self._limits)
        folders = {self._root, self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())}
        for path in [*files, *self._root.glob(POLICY_TOML), *folders]:
            sync(path)
        return digest(self.folder)

    def place(self, target: Path) -> None:
        """Put it where it belongs, all at once and for good.

        Raises:
            PreconditionError: somebody else has put something there meanwhile.

        """
        try:
            self._root.rename(target)
        except OSError as error:
            raise PreconditionError(f"{target} is taken: {error.strerror}; publish again") from error
        sync(target.parent)

    def remove(self) -> None:
        """Remove what has not been put into place."""
        self._end()
        remove_folder(self._root)
