"""The files of a version that is being published: in a hidden staging folder, which one rename puts into its place."""

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from policybridge_core.digest import digest as digest_of
from policybridge_core.digest import version_files
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_server.repository.checks import Limits, check_files, check_path
from policybridge_server.repository.config import POLICY_TOML
from policybridge_server.repository.files import PUBLISHING, hidden, remove_folder, sync

FIRST: Final = "1"


class Staging:
    """A staging folder, made empty on the file system of the repository. For one thread at a time.

    Args:
        policy: the policy's folder.
        limits: how large the version may be.
        config: for a policy that does not exist yet: the text of its ``policy.toml``.

    Attributes:
        folder: holds the version's files.

    """

    def __init__(self, policy: Path, limits: Limits, config: str = "") -> None:
        self._limits = limits
        self._is_first = bool(config)
        self._root = hidden(policy.parent if config else policy, PUBLISHING)
        self.folder = self._root / FIRST if config else self._root
        # Without its parents: if they have been removed, a version would be there alone, without the
        # policy.toml, which this server knows and the next one does not.
        self._root.mkdir()
        if config:
            self.folder.mkdir()
            (self._root / POLICY_TOML).write_text(config)
        self._paths: dict[PurePosixPath, None] = {}
        self._size = 0
        self._file: BinaryIO | None = None

    def write(self, path: str, data: bytes) -> None:
        """Append ``data`` to the file ``path``; the pieces of one file follow each other.

        Raises:
            InvalidError: the path is not allowed, or pieces of another file came after earlier ones of this file.
            TooLargeError: the version is larger than the limits.

        """
        relative = check_path(path)
        if self._file is None or relative != next(reversed(self._paths)):
            self._begin(relative)
        self._size += len(data)
        if self._size > self._limits.bytes:
            raise TooLargeError(
                f"more than {self._limits.bytes} bytes; the operator allows no more (--max-artifact-bytes)"
            )
        if self._file is not None:
            self._file.write(data)

    def _begin(self, path: PurePosixPath) -> None:
        self._end()
        if path in self._paths:
            raise InvalidError(f"{path} came already; the pieces of one file must follow each other")
        if len(self._paths) == self._limits.files:
            raise TooLargeError(f"more than {self._limits.files} files; the operator allows no more")
        try:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / path).open("xb")
        except (FileExistsError, NotADirectoryError):
            raise InvalidError(f"{path} is a file and a folder") from None
        self._paths[path] = None

    def _end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def link(self, base: Path) -> None:
        """Add the files of the version in the folder ``base``, as hard links if the file system has them."""
        for file in version_files(base):
            target = self.folder / file.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)
            except OSError:
                shutil.copyfile(file, target)

    def seal(self, announced: str | None = None) -> str:
        """Bring everything to the disk itself, and give the digest.

        Raises:
            InvalidError: the digest is not the ``announced`` one: files were lost or changed on the way.
            PreconditionError: there is no file, or a file is not allowed.
            TooLargeError: the version is larger than the limits, as it is or with its archives unpacked.

        """
        self._end()
        files = version_files(self.folder)
        if not files:
            raise PreconditionError("a version has at least one file")
        check_files(self.folder, self._limits)
        folders = {self._root, self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())}
        for path in [*files, *self._root.glob(POLICY_TOML), *folders]:
            sync(path)
        digest = digest_of(self.folder)
        if announced is not None and digest != announced:
            raise InvalidError(f"the files have the digest {digest}; {announced or 'none'} was announced")
        return digest

    def place(self, target: Path) -> None:
        """Rename to ``target``, the version's folder; the folder of a new policy, too.

        Raises:
            PreconditionError: there is something already.

        """
        place = target.parent if self._is_first else target
        try:
            self._root.rename(place)
        except OSError as error:
            raise PreconditionError(f"{place} is taken: {error.strerror}; publish again") from error
        self._root = place
        sync(place.parent)

    def remove(self) -> None:
        """Remove everything, from its place too."""
        self._end()
        remove_folder(self._root)


class FolderInPlace:
    """The files of a copied version, which are neither moved nor removed.

    Attributes:
        folder: holds them.

    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self._limits = limits

    def seal(self) -> str:
        """Give the digest.

        Raises:
            PreconditionError: there is a file that is not allowed.
            TooLargeError: the version is larger than the limits, as it is or with its archives unpacked.

        """
        check_files(self.folder, self._limits)
        return digest_of(self.folder)

    def place(self, target: Path) -> None:
        """Do nothing: the files are there."""

    def remove(self) -> None:
        """Do nothing: the files are not the server's."""
