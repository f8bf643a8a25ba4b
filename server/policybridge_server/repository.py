"""The policy repository on disk: ``DIR/<policy>/policy.toml`` and ``DIR/<policy>/<version>/…``.

A version is a folder whose name is a number; its files are never changed once they are there.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_serdes.errors import NotFoundError, PolicyBridgeError, PreconditionError

_LOG = logging.getLogger(__name__)

LATEST = "latest"


class HeadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``[head]`` of a ``policy.toml``: the model's output scores choices, and one of them is the advice.

    Attributes:
        scores: what the output is: ``logits`` or ``probabilities``.
        mask: a feature of the client with an element per choice, 0 where it is illegal.
        advice: the advice's name.
        type: its element type, an integer one.

    """

    scores: Literal["logits", "probabilities"] = "logits"
    mask: str | None = None
    advice: str = "advice"
    type: Literal["int8_t", "int16_t", "int32_t", "int64_t"] = "int64_t"


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``policy.toml``.

    Attributes:
        backend: what loads the versions: ``onnx``, ``python``, …
        description: for people.
        inline: evaluate on the loop thread (true) or in a worker (false); absent: measured when a version is loaded.
        aliases: names for version numbers; ``latest`` is always the highest.
        features: the inputs in LLVM's JSON form, where the artifact cannot tell them.
        advice: the output, likewise.
        rename: input of the policy → feature of the client, where their names differ.
        fill: values for inputs that a client may lack.
        head: what makes advice of scores, where the model gives those.
        settings: for the backend to read.

    """

    backend: str
    description: str = ""
    inline: bool | None = None
    aliases: dict[str, int] = {}
    features: list[dict[str, Any]] | None = None
    advice: dict[str, Any] | None = None
    rename: dict[str, str] = {}
    fill: dict[str, Any] = {}
    head: HeadConfig | None = None
    settings: dict[str, Any] = {}


@dataclass(frozen=True)
class StoredVersion:
    """One version of one policy: its identity, its files and how they are to be loaded."""

    policy: PolicyVersion
    folder: Path
    config: PolicyConfig

    def __str__(self) -> str:
        return f"{self.policy.name}@{self.policy.version}"


class Repository:
    """The policies under some folders, as they were when it was made.

    Raises:
        NotFoundError: one of ``folders`` does not exist.
        PreconditionError: two folders hold a policy of the same name.

    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._configs: dict[str, PolicyConfig | PreconditionError] = {}
        self._versions: dict[str, Mapping[int, StoredVersion]] = {}
        for folder in folders:
            if not folder.is_dir():
                raise NotFoundError(f"the repository {folder} is no folder")
            for file in sorted(folder.glob("*/policy.toml")):
                self._add(file)

    def _add(self, file: Path) -> None:
        name = file.parent.name
        if name in self._configs:
            raise PreconditionError(f"two repositories hold a policy {name!r}; the second is {file.parent}")
        try:
            config = _read_config(file)
        except PreconditionError as error:
            _LOG.warning("%s", error)
            self._configs[name] = error
            return
        self._configs[name] = config
        folders = [folder for folder in file.parent.iterdir() if folder.name.isdecimal() and folder.is_dir()]
        self._versions[name] = {int(folder.name): _stored(name, folder, config) for folder in folders}

    def policies(self) -> list[str]:
        """Name all policies, those with a broken ``policy.toml`` too."""
        return list(self._configs)

    def resolve(self, reference: PolicyReference) -> StoredVersion:
        """Find the version that ``reference`` means now.

        Raises:
            NotFoundError: no such policy, version or alias; the message lists those that there are.
            PreconditionError: its ``policy.toml`` cannot be used.

        """
        config = self._configs.get(reference.name)
        if config is None:
            raise NotFoundError(f"no policy {reference.name!r}; there are {_listed(self._configs)}")
        if isinstance(config, PolicyBridgeError):
            raise config
        versions = self._versions[reference.name]
        number = _number(reference, config, versions)
        if number not in versions:
            raise NotFoundError(f"no version {number} of policy {reference.name!r}; there are {_listed(versions)}")
        return versions[number]


def _number(reference: PolicyReference, config: PolicyConfig, versions: Mapping[int, StoredVersion]) -> int:
    if reference.version is not None:
        return reference.version
    alias = reference.alias or LATEST
    if alias in config.aliases:
        return config.aliases[alias]
    if alias != LATEST:
        known = _listed([LATEST, *config.aliases])
        raise NotFoundError(f"policy {reference.name!r} has no alias {alias!r}; there are {known}")
    if not versions:
        raise NotFoundError(f"policy {reference.name!r} has no version yet")
    return max(versions)


def _listed(names: object) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "none"  # type: ignore[call-overload]


def _read_config(file: Path) -> PolicyConfig:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=PolicyConfig)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreconditionError(f"{file}: {error}") from error


def _stored(name: str, folder: Path, config: PolicyConfig) -> StoredVersion:
    return StoredVersion(PolicyVersion(name, int(folder.name), digest(folder)), folder, config)


def digest(folder: Path) -> str:
    """Digest a version's files by name and content: ``sha256:`` and hexadecimal digits.

    What Python leaves behind when it imports a policy is no part of the version.
    """
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        total.update(f"{content}  {file.relative_to(folder).as_posix()}\n".encode())
    return f"sha256:{total.hexdigest()}"
