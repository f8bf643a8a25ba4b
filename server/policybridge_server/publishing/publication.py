"""A version that is being made, up to the moment at which sessions may get it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyVersion, Signature
from policybridge_server.backends.contract import WeightsBackend, load_backend
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.probe import Probe
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.publishing.compatibility import check_compatible
from policybridge_server.repository import StoredPolicy, StoredVersion
from policybridge_server.repository.aliases import write_aliases
from policybridge_server.repository.retired import remove_version
from policybridge_server.repository.staging import Staging


class Predecessor(NamedTuple):
    """The version that new sessions get now, and the signatures of those who are on it."""

    loaded: LoadedVersion
    clients: Sequence[Signature]


@dataclass(frozen=True)
class Draft:
    """What is to become a version.

    Attributes:
        policy: whose; as it was when the draft was begun.
        is_new: whether the policy is made with it.
        staging: the files.

    """

    policy: StoredPolicy
    is_new: bool
    staging: Staging


@dataclass(frozen=True)
class Making:
    """Turns a draft into a loaded version in its place; blocks, for a thread of its own.

    Attributes:
        draft: the files.
        policy: as it will be, with its aliases, but without the version.
        number: of the version.
        seal: brings the files to the disk and gives their digest.
        aliases: whether aliases are set with it.
        old: whose place it takes.
        proven: what is known of its architecture.

    """

    draft: Draft
    policy: StoredPolicy
    number: int
    seal: Callable[[], str]
    aliases: bool = False
    old: Predecessor | None = None
    proven: Probe | None = None

    def run(self, versions: LoadedVersions) -> LoadedVersion:
        """Seal, load, probe, warm up, check, put into place.

        Raises:
            PolicyBridgeError: one of them failed; nothing is left but the draft.

        """
        staging = self.draft.staging
        try:
            version = PolicyVersion(self.policy.name, self.number, self.seal())
            stored = StoredVersion(version, self.policy.folder / str(self.number), self.policy.usable)
            loaded = versions.prepare(stored, staging.folder, self.proven)
            try:
                self._place(loaded)
            except BaseException:
                loaded.close()
                raise
        except OSError as error:
            raise PreconditionError(f"the repository cannot be written: {error}") from error
        except PolicyBridgeError as error:
            # The publisher knows its files, and not where they were meanwhile.
            text = str(error).replace(f"{staging.folder}/", "").replace(str(staging.folder), "the version")
            raise type(error)(text) from error
        return loaded

    def _place(self, loaded: LoadedVersion) -> None:
        if self.old is not None:
            check_compatible(loaded, *self.old)
        self.draft.staging.place(self.policy.folder if self.draft.is_new else loaded.stored.folder)
        if self.aliases:
            try:
                write_aliases(self.policy.folder, self.policy.changed)
            except BaseException:
                remove_version(loaded.stored.folder)
                raise


def next_version(draft: Draft, now: StoredPolicy, aliases: Sequence[str], seal: Callable[[], str]) -> Making:
    """Plan the version after those that there are ``now``."""
    number = max([0, *now.versions, *now.refused]) + 1
    while (now.folder / str(number)).exists():
        # Somebody copies a folder in right now.
        number += 1
    policy = replace(now, changed={**now.changed, **dict.fromkeys(aliases, number)})
    return Making(draft, policy, number, seal, aliases=bool(aliases))


def seal_as(staging: Staging, digest: str) -> str:
    """Seal ``staging``, whose digest must be ``digest``.

    Raises:
        InvalidError: it is another one: something got lost on the way.

    """
    found = staging.seal()
    if found != digest:
        raise InvalidError(f"the files have the digest {found}; {digest or 'none'} was announced")
    return found


def seal_with_weights(staging: Staging, base: StoredVersion, weights: bytes) -> str:
    """Seal the files of ``base`` with other ``weights`` in them.

    Raises:
        InvalidError: ``weights`` are no safetensors.
        PreconditionError: they are not for this base, or its backend cannot replace weights.

    """
    backend = load_backend(base.config.backend)
    if not isinstance(backend, WeightsBackend):
        raise PreconditionError(f"the backend {base.config.backend!r} takes no weights alone; publish all files")
    staging.link(base.folder)
    backend.replace_weights(staging.folder, base.config, weights)
    return staging.seal()
