"""The other processes of a server, as a worker reaches them: by the line to its parent."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.recorder import Acknowledge, wait_recorded
from policybridge_server.engine.trials import Trial, TrialKey
from policybridge_server.following.replicas import View
from policybridge_server.grpc.replication_service import replicas_of
from policybridge_server.loop import Loop
from policybridge_server.page.state import server_state
from policybridge_server.publishing.compatibility import check_compatible
from policybridge_server.repository import StoredPolicy, StoredVersion
from policybridge_server.telemetry.snapshot import Snapshot, snapshot
from policybridge_server.transports.contract import Host
from policybridge_server.workers.line import Line
from policybridge_server.workers.welcome import Welcome

_SOON: Final = 5.0
"""Seconds for the parent to answer a question about the other workers. They have 2 s of these."""


class Fleet:
    """Implements `Peers` by a line to the parent. For the loop thread.

    Args:
        line: the line to the parent.
        loop: this process's loop.
        engine: this process's engine.
        welcome: the parent's first message.

    """

    def __init__(self, line: Line, loop: Loop, engine: Engine, welcome: Welcome) -> None:
        mark = welcome.mark
        self.workers = welcome.count
        self._leads = welcome.index == 0
        self._line = line
        self._loop = loop
        self._mark = mark
        self._engine = engine
        engine.mark = mark
        engine.forward = self._forward

    @property
    def processes(self) -> list[int]:
        """Give the number of this process; the first worker counts the parent, too."""
        return [os.getpid(), os.getppid()] if self._leads else [os.getpid()]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold this process's turn to change the repository."""
        taking = self._loop.spawn(self._line.call("turn"))
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda _: self._tell("end_turn"))
            raise
        try:
            yield
        finally:
            self._tell("end_turn")

    async def prepare(self, version: StoredVersion, *, published: bool) -> None:
        """Let all others load a version."""
        try:
            await self._line.call("others", "prepare", version, published)
        except BaseException:
            self._tell("others", "drop", version.policy)
            raise

    async def take(self, policy: StoredPolicy) -> None:
        """Let all others serve the present state of the policy here."""
        await self._line.call("others", "take", policy)

    def when_left(self, folder: Path, call: Callable[[], None]) -> None:
        """Call ``call`` when no other process has the version in this folder loaded."""
        self._loop.spawn(self._when_left(folder, call))

    async def _when_left(self, folder: Path, call: Callable[[], None]) -> None:
        # After this change: then no process opens a session on the version any more.
        async with self.turn():
            pass
        with suppress(PolicyBridgeError):
            await self._line.call("others", "left", folder)
            call()

    async def gather(self, what: str) -> list[Any]:
        """Send all others the question ``what``."""
        return await self._soon("gather", what)

    async def snapshots(self, own: Snapshot) -> list[Snapshot]:
        """Return the numbers of the other processes, and of ended ones."""
        return await self._soon("snapshots", own)

    async def _soon(self, name: str, *arguments: Any) -> list[Any]:
        try:
            return list(await asyncio.wait_for(self._line.call(name, *arguments), _SOON))
        except TimeoutError:
            raise UnavailableError(f"the parent of the workers has not answered for {_SOON:g} s") from None

    def _forward(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str) -> bool:
        if session_id.endswith(self._mark):
            return False
        self._loop.spawn(self._report(session_id, outcome, acknowledge, reporter))
        return True

    async def _report(self, session_id: str, outcome: Outcome | None, acknowledge: Acknowledge, reporter: str) -> None:
        try:
            if await self._line.call("report", session_id, outcome, reporter):
                acknowledge(None)
            else:
                self._engine.report_here(session_id, outcome, acknowledge, reporter)
        except PolicyBridgeError as error:
            acknowledge(error)

    def _tell(self, name: str, *arguments: Any) -> None:
        self._loop.spawn(self._told(name, *arguments))

    async def _told(self, name: str, *arguments: Any) -> None:
        with suppress(PolicyBridgeError):
            await self._line.call(name, *arguments)


class Answers:
    """Answers the questions of other workers. For the loop thread.

    Args:
        host: of this process.

    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._publisher = host.publisher
        self._opener = host.opener
        self._engine = host.opener.engine
        self._repository = self._engine.repository
        self._prepared: dict[PolicyVersion, LoadedVersion] = {}

    async def prepare(self, version: StoredVersion, published: bool) -> None:
        """See `Peers.prepare`."""
        if not published:
            await self._opener.version(PolicyReference(version.policy.name, version=version.policy.version))
            return
        async with self._opener.loading:
            loaded = await asyncio.to_thread(self._engine.versions.prepare, version)
            try:
                self._check(loaded)
            except PolicyBridgeError:
                loaded.close()
                raise
            self._prepared[version.policy] = loaded

    def _check(self, loaded: LoadedVersion) -> None:
        current = self._current(loaded.stored.policy.name)
        if current is not None and current.stored.policy.version < loaded.stored.policy.version:
            check_compatible(loaded, current, current.clients())

    def _current(self, name: str) -> LoadedVersion | None:
        try:
            return self._engine.loaded(PolicyReference(name))
        except PolicyBridgeError:
            return None

    async def drop(self, version: PolicyVersion) -> None:
        """Undo `prepare`."""
        async with self._opener.loading:
            loaded = self._prepared.pop(version, None)
            if loaded is not None:
                loaded.close()

    async def take(self, policy: StoredPolicy) -> None:
        """See `Peers.take`."""
        async with self._opener.loading:
            before = self._repository.find(policy.name)
            for number in policy.versions:
                loaded = self._prepared.pop(policy.versions[number].policy, None)
                if loaded is not None:
                    self._engine.versions.admit(loaded)
            self._repository.put(policy)
            for number in () if before is None else before.versions.keys() - policy.versions.keys():
                self._publisher.retention.forgotten(policy.folder / str(number))
            self._engine.versions.unload_unused()

    async def left(self, folder: Path) -> None:
        """See `Peers.when_left`."""
        await self._publisher.retention.left(folder)

    async def replicas(self) -> View:
        """Give the replicas that are connected to this process."""
        return replicas_of(self._host).view()

    async def policies(self) -> list[StoredPolicy]:
        """Return the policies of the repository."""
        return self._publisher.policies()

    async def sessions(self) -> Counter[PolicyVersion]:
        """Give the numbers of sessions by version."""
        return Counter({loaded.stored.policy: loaded.sessions for loaded in self._engine.versions.loaded})

    async def snapshot(self) -> Snapshot:
        """Give the numbers of this process."""
        return snapshot(self._host)

    async def trials(self) -> Mapping[TrialKey, Trial]:
        """Give the files that failed in this process under roll-outs."""
        return self._engine.trials.all

    async def progress(self) -> Mapping[str, str]:
        """Give how far the comparisons of roll-outs are, if this process makes them."""
        return self._publisher.rollouts.progress

    async def state(self) -> dict[str, Any]:
        """Return the page's view of this process."""
        return server_state(self._host)

    async def reread(self) -> None:
        """See `Publisher.reread`."""
        await self._publisher.reread()

    async def report(self, session_id: str, outcome: Outcome | None, reporter: str) -> None:
        """Record the outcome of a session of this process."""
        await wait_recorded(partial(self._engine.report_here, session_id, outcome, reporter=reporter))
