"""A repository at an address of fsspec: an object store, or a folder that several machines see.

======================================= ==============================================================================
``ADDRESS/<policy>/policy.toml``        as in a folder
``ADDRESS/<policy>/<number>-<digest>/…`` the files of a version
``ADDRESS/<policy>/<number>.json``      the manifest of a version, written after its files: the version is there when
                                        this is; see `Manifest`
``ADDRESS/<policy>/aliases.toml``       as in a folder
``ADDRESS/<policy>/rollout.json``       as in a folder
======================================= ==============================================================================

An object is replaced as a whole, or not at all. The folder of a version's files is named by its digest, so that two
servers that publish at the same time do not write the same objects; the one that writes the manifest first has the
number.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from policybridge_core.digest import version_files
from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_core.plugins import load_part
from policybridge_server.repository.checks import check_path, is_name, is_number
from policybridge_server.repository.staging import Staging
from policybridge_server.repository.toml import check_size

POLICY: Final = "policy.toml"
ALIASES: Final = "aliases.toml"

_MANIFEST: Final = ".json"
_PIECE: Final = 1 << 20
_LARGEST: Final = 1 << 20
"""Bytes of a small file: a policy.toml, aliases, a manifest."""


class File(msgspec.Struct, frozen=True):
    """A file of a version."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a version.

    Attributes:
        digest: the version's digest.
        folder: the folder of the files, beside the manifest.
        files: size and digest by path in the folder.

    """

    digest: str
    folder: str
    files: dict[str, File]


class RemoteRepository:
    """Reads and writes one address. All methods block.

    Args:
        address: such as ``s3://BUCKET/FOLDER``; fsspec's own environment and files configure the access.

    Raises:
        PreconditionError: a package for this kind of address is not installed.
        InvalidError: no package knows this kind.

    """

    def __init__(self, address: str) -> None:
        self.address = address
        url_to_fs: Any = load_part("fsspec.core:url_to_fs [remote]", f"--repository {address}")
        try:
            self._files, root = url_to_fs(address, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise PreconditionError(f"--repository {address}: {error}") from error
        except ValueError as error:
            raise InvalidError(f"--repository {address}: {error}") from error
        self._root = root.rstrip("/")

    def policies(self) -> list[str]:
        """Name the policies.

        Raises:
            UnavailableError: the address cannot be read.

        """
        return sorted(
            name for name, (kind, _) in self._listed(self._root).items() if kind == "directory" and is_name(name)
        )

    def entries(self, policy: str) -> dict[str, str]:
        """Return the files in a policy's folder: name → a text that changes with the content.

        Raises:
            UnavailableError: the address cannot be read.

        """
        return {name: mark for name, (kind, mark) in self._listed(self._path(policy)).items() if kind == "file"}

    def _listed(self, path: str) -> dict[str, tuple[str, str]]:
        with self._reached():
            try:
                entries = self._files.ls(path, detail=True, refresh=True)
            except FileNotFoundError:
                # An object store has no empty folders.
                return {}
        return {entry["name"].rstrip("/").rpartition("/")[2]: (entry["type"], _mark(entry)) for entry in entries}

    def read(self, policy: str, name: str) -> bytes:
        """Give the content of a small file of a policy; empty if it is not there.

        Raises:
            UnavailableError: the address cannot be read.
            PreconditionError: the file has more than 1 MiB.

        """
        with self._reached():
            try:
                with self._files.open(self._path(policy, name), "rb") as file:
                    content = bytes(file.read(_LARGEST + 1))
            except FileNotFoundError:
                return b""
        check_size(len(content), f"{self.address}/{policy}/{name}", _LARGEST)
        return content

    def manifest(self, policy: str, number: int) -> Manifest:
        """Give the manifest of a version.

        Raises:
            PreconditionError: it is malformed or missing.
            UnavailableError: the address cannot be read.

        """
        try:
            manifest = msgspec.json.decode(self.read(policy, f"{number}{_MANIFEST}"), type=Manifest)
        except msgspec.DecodeError as error:
            raise PreconditionError(f"the manifest of {policy}@{number} cannot be used: {error}") from error
        if not manifest.folder.startswith(f"{number}-") or "/" in manifest.folder:
            raise PreconditionError(f"the manifest of {policy}@{number} names the folder {manifest.folder!a}")
        return manifest

    def fetch(self, policy: str, number: int, staging: Staging) -> None:
        """Write the files of a version into ``staging``.

        Raises:
            PreconditionError: a file's size or digest is not the manifest's.
            PolicyBridgeError: the manifest cannot be used, or the address cannot be read.

        """
        manifest = self.manifest(policy, number)
        for path in manifest.files:
            check_path(path)
        for path, file in manifest.files.items():
            digest, size = hashlib.sha256(), 0
            for piece in self._pieces(self._path(policy, manifest.folder, path)):
                staging.write(path, piece)
                digest.update(piece)
                size += len(piece)
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise PreconditionError(
                    f"{path} of {policy}@{number} is not the file of the manifest: {size} bytes came"
                )

    def _pieces(self, path: str) -> Iterator[bytes]:
        with self._reached(), self._files.open(path, "rb", block_size=_PIECE) as file:
            piece = file.read(_PIECE)
            yield piece
            while piece := file.read(_PIECE):
                yield piece

    def push(self, version: Path, digest: str, config: str) -> None:
        """Add a version: its files, and then its manifest.

        Args:
            version: the folder ``<policy>/<number>`` with its files.
            digest: of the version.
            config: the text of the policy's ``policy.toml``.

        Raises:
            PreconditionError: the number is taken, or the policy has another ``policy.toml`` there.
            UnavailableError: the address cannot be written; then the version does not exist.

        """
        policy, number = version.parent.name, int(version.name)
        folder = f"{number}-{digest.removeprefix('sha256:')[:16]}"
        files: dict[str, File] = {}
        before = self.read(policy, POLICY)
        if before not in (b"", config.encode()):
            raise PreconditionError(f"policy {policy!r} has another policy.toml at {self.address}")
        if not before:
            self.write(policy, POLICY, config.encode())
        for file in version_files(version):
            path = file.relative_to(version).as_posix()
            with self._reached():
                self._make_folder(self._path(policy, folder, path))
                self._files.put_file(str(file), self._path(policy, folder, path))
            with file.open("rb") as content:
                files[path] = File(file.stat().st_size, hashlib.file_digest(content, "sha256").hexdigest())
        manifest = msgspec.json.format(msgspec.json.encode(Manifest(digest, folder, files)))
        try:
            with self._reached():
                self._files.pipe_file(self._path(policy, f"{number}{_MANIFEST}"), manifest, mode="create")
        except FileExistsError as error:
            raise PreconditionError(f"{policy}@{number} is at {self.address} already; publish again") from error

    def withdraw(self, policy: str, number: int) -> None:
        """Remove a version: its manifest, and then its files. Nothing is done if it is not there.

        Raises:
            UnavailableError: the address cannot be written.

        """
        try:
            folder: str | None = self.manifest(policy, number).folder
        except PreconditionError:
            folder = None
        with self._reached():
            for path, recursive in ((f"{number}{_MANIFEST}", False), (folder, True)):
                try:
                    if path is not None:
                        self._files.rm(self._path(policy, path), recursive=recursive)
                except FileNotFoundError:
                    continue

    def write(self, policy: str, name: str, content: bytes) -> None:
        """Replace a small file of a policy; without content, remove it.

        Raises:
            UnavailableError: the address cannot be written.

        """
        path = self._path(policy, name)
        with self._reached():
            if content:
                self._make_folder(path)
                self._files.pipe_file(path, content)
            else:
                try:
                    self._files.rm_file(path)
                except FileNotFoundError:
                    return

    def _make_folder(self, path: str) -> None:
        # Object stores have no folders, and s3fs would try to make a bucket.
        if "file" in _protocols(self._files):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _path(self, *parts: str) -> str:
        return "/".join([self._root, *parts])

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn errors of the block into ours, except for missing and already existing files."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, PolicyBridgeError):
            raise
        except Exception as error:
            # The packages for the kinds of addresses raise errors of their own classes.
            raise UnavailableError(f"{self.address}: {type(error).__name__}: {error}") from error


def numbers(entries: Mapping[str, str]) -> dict[int, str]:
    """Give the versions that have a manifest: number → a text that changes with the manifest."""
    named = {name.removesuffix(_MANIFEST): mark for name, mark in entries.items() if name.endswith(_MANIFEST)}
    return {int(name): mark for name, mark in named.items() if is_number(name)}


def _mark(entry: Mapping[str, Any]) -> str:
    told = [entry.get(key) for key in ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "size")]
    return " ".join(str(each) for each in told if each is not None)


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
