"""A publication: one transaction, from a version's first file to the moment at which new sessions get it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_serdes import PolicyReference, PolicyVersion, Signature
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.probe import Probe
from policybridge_server.publishing.compatibility import check_compatible
from policybridge_server.publishing.peers import Peers
from policybridge_server.publishing.rollouts import check_not_rolled_out
from policybridge_server.repository import StoredPolicy, StoredVersion, version_digest
from policybridge_server.repository.numbers import Numbers

_LOG = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class NewVersion:
    """A version that is to be published.

    Attributes:
        policy: the policy before the publication.
        number: the version's number.
        seal: writes the files to the disk and returns the digest of only the files.
        aliases: the aliases to move to the version.
        probed: the probes of its models, if known of the same architectures with other weights.
        identity: the digest that the version must have; ``None``: any.

    """

    policy: StoredPolicy
    number: int
    seal: Callable[[], str]
    aliases: Sequence[str] = ()
    probed: Sequence[Probe] = ()
    identity: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the version's files."""
        return self.policy.folder / str(self.number)

    @property
    def aliases_after(self) -> Mapping[str, int]:
        """The policy's aliases after the publication."""
        return {**self.policy.changed, **dict.fromkeys(self.aliases, self.number)}


def _sealed(new: NewVersion) -> StoredVersion:
    policy, found = new.policy, version_digest(new.seal(), new.policy.usable)
    if new.identity not in (None, found):
        raise InvalidError(f"these files have the digest {found}, and {policy.name}@{new.number} has {new.identity}")
    return StoredVersion(PolicyVersion(policy.name, new.number, found), new.folder, policy.usable)


class VersionFiles(Protocol):
    """The files of a version that is being published: `Staging`, or `FolderInPlace`."""

    folder: Path

    def place(self, target: Path) -> None:
        """Move them to ``target``, all at once and durably."""

    def remove(self) -> None:
        """Remove them, wherever they are."""


class Publication(AbstractAsyncContextManager["Publication"]):
    """Owns the files of a new version until new sessions get it. For the loop thread.

    When the block is left before the switch, because of an error or a cancellation at any stage, everything is undone:
    the files are removed, the model is freed, the aliases are restored.

    Args:
        opener: opens the engine's sessions.
        files: the version's files.
        switch: lets new sessions get the loaded version of the policy.
        peers: get the version before this process; if one fails, none gets it.
        numbered: gives a policy's numbers, once it has versions of these numbers; blocks.

    """

    def __init__(
        self,
        opener: SessionOpener,
        files: VersionFiles,
        switch: Callable[[StoredPolicy, LoadedVersion], None],
        peers: Peers,
        numbered: Callable[[StoredPolicy, Iterable[int]], Numbers | None],
    ) -> None:
        self._peers = peers
        self._numbered = numbered
        self._opener = opener
        self._engine = opener.engine
        self._files = files
        self._switch = switch
        self._switched = False
        self._turn = AsyncExitStack()
        self._undo = ExitStack()
        self._undo.callback(files.remove)

    async def __aexit__(self, *_: object) -> None:
        # Undo before the next publication has its turn: it could otherwise meet the files of this one.
        async with self._turn:
            if self._switched:
                return
            try:
                await self.run(self._undo.close)
            except Exception:
                # The caller gets the error of the stage. Files left in staging folders are removed at the next start.
                _LOG.exception("a failed publication could not be undone completely")

    def undo(self, step: Callable[[], object]) -> None:
        """Do ``step`` too, if the block is left before the switch."""
        self._undo.callback(step)

    async def begin(self) -> None:
        """Wait until no other version is loaded or published. The turn ends with the block."""
        await self._turn.enter_async_context(self._opener.changing())

    async def publish(self, new: NewVersion) -> PolicyVersion:
        """Let new sessions get a version, once it has been checked, loaded and warmed up.

        Raises:
            PolicyBridgeError: a stage failed, and this server is unchanged.

        """
        policy = new.policy
        for alias in new.aliases:
            check_not_rolled_out(policy, alias)
        current = await self._current(policy.name)
        clients = [] if current is None else current.clients()
        try:
            loaded, numbers = await self.run(partial(self._stages, new, current, clients))
            await self._peers.prepare(loaded.stored, published=True)
        except PolicyBridgeError as error:
            self._engine.counters.publications["refused"] += 1
            if self._files.folder == new.folder:
                raise
            # The client knows its files, not the folder where they were staged.
            text = str(error).replace(f"{self._files.folder}/", "").replace(str(self._files.folder), "the version")
            raise type(error)(text) from error
        elsewhere = {each: told for each, told in policy.elsewhere.items() if each != new.number}
        self._switch(replace(policy, changed=new.aliases_after, numbers=numbers, elsewhere=elsewhere), loaded)
        self._switched = True
        self._engine.counters.publications["published"] += 1
        await self._peers.take(self._engine.repository.policy(policy.name))
        return loaded.stored.policy

    def _stages(
        self, new: NewVersion, current: LoadedVersion | None, clients: Sequence[Signature]
    ) -> tuple[LoadedVersion, Numbers | None]:
        """Load the version, check it, and write all of it; give it, and the policy's numbers. Blocks."""
        loaded = self._engine.versions.prepare(_sealed(new), self._files.folder, new.probed, rehearse=True)
        self._undo.callback(loaded.close)
        if current is not None and current.stored.policy.version < new.number:
            check_compatible(loaded, current, clients)
        self._files.place(new.folder)
        self._write(new, loaded.stored.policy.digest)
        # The first version of a policy: it has a folder now.
        return loaded, self._numbered(new.policy, [*new.policy.versions, new.number])

    def _write(self, new: NewVersion, digest: str) -> None:
        """Write the version to the origin of its folder, if there is one, and the aliases."""
        policy, repository = new.policy, self._engine.repository
        origin = repository.origin(policy.folder)
        if origin is not None:
            origin.push(new.folder, digest, policy.text)
            self._undo.callback(origin.withdraw, policy.name, new.number)
        if new.aliases:
            self._undo.callback(repository.write_aliases, policy.folder, policy.changed)
            repository.write_aliases(policy.folder, new.aliases_after)

    async def _current(self, name: str) -> LoadedVersion | None:
        """Return the loaded version for new sessions; ``None`` if none can be loaded."""
        reference = PolicyReference(name)
        with suppress(NotFoundError, PreconditionError):
            return self._engine.loaded(reference) or await self.run(partial(self._engine.load, reference))
        return None

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run ``work``, which may block, in a thread.

        A cancellation is raised only when the thread has ended: nothing is undone while the thread still works.

        Raises:
            PreconditionError: the files cannot be read or written.

        """
        running = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(running)
        except OSError as error:
            raise PreconditionError(f"the repository cannot be written: {error}") from error
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({running})
            # Read its error, if any; otherwise asyncio would log it as unhandled.
            running.exception()
            raise
