"""A serving process: it loads policies and listens, alone or as one of several workers."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.access import Access
from policybridge_server.budget import return_memory
from policybridge_server.config import ServerConfig
from policybridge_server.engine.admission import Admission, Elsewhere
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.engine.timeouts import Timeouts
from policybridge_server.engine.tracing import Tracer
from policybridge_server.following import Following
from policybridge_server.following.places import all_folders, copies, origins
from policybridge_server.forms.offering import forms_of_version, may_have_forms
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.loop import Loop
from policybridge_server.publishing.peers import Alone, Peers
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.publishing.watcher import FolderWatcher
from policybridge_server.reloading import Reloading
from policybridge_server.repository import Limits, Repository, StoredPolicy
from policybridge_server.repository.guessing import say_empty
from policybridge_server.rollouts.judge import Judge
from policybridge_server.transports.contract import Host, Transport, load_transport
from policybridge_server.transports.listener import Share

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Membership:
    """The place of a process among those of its server.

    Attributes:
        peers: the other processes.
        share: its share of the connections; ``None``: all.
        elsewhere: counts the other processes' sessions; ``None`` without other processes.
        leads: whether it watches folders and judges roll-outs, which only one process may do.

    """

    peers: Peers = field(default_factory=Alone)
    share: Share | None = None
    elsewhere: Elsewhere | None = None
    leads: bool = True


def make_engine(
    config: ServerConfig,
    recorder: LedgerRecorder | None,
    tracer: Tracer | None,
    policies: list[StoredPolicy] | None = None,
) -> Engine:
    """Make the engine of a serving process with ``policies``, those of the other processes; ``None``: the disk's."""
    limits = Limits(config.max_artifact_bytes, config.max_artifact_files)
    return Engine(
        Repository(all_folders(config), limits, policies, origins(config)),
        allow_python=config.allow_python,
        recorder=recorder,
        timeouts=Timeouts(config.decision_timeout, config.load_timeout),
        tracer=tracer,
    )


class Daemon:
    """One run of a serving process: start up, wait for the end, shut down.

    Args:
        config: the configuration.
        engine: the engine, not attached yet.
        loop: this process's loop.
        recorder: the ledger's recorder, not started yet; ``None`` without one.
        membership: this process's place in the server.

    Attributes:
        signals: the received signals: the first one drains, the second one ends at once.

    """

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        loop: Loop,
        recorder: LedgerRecorder | None,
        membership: Membership | None = None,
    ) -> None:
        member = membership or Membership()
        self._config = config
        self._engine = engine
        self._loop = loop
        self._recorder = recorder
        self._member = member
        self._access = Access(config)
        self._admission = Admission(config.max_sessions, config.max_client_sessions, config.max_client_opens)
        if member.elsewhere is not None:
            self._admission.elsewhere = member.elsewhere
        engine.needs_report_scope = config.report_scope
        self._opener = SessionOpener(engine, self._admission)
        if not config.no_forms:
            self._opener.make_forms, self._opener.may_have_forms = forms_of_version, may_have_forms
        self.reloading = Reloading(self._admission, self._access)
        self._opener.turn = member.peers.turn
        self._publisher = Publisher(
            self._opener,
            allowed=config.allow_publish,
            keep_versions=config.keep_versions,
            leader=config.follow,
            peers=member.peers,
        )
        self._following = Following(config, self._opener, self._publisher)
        self._transports = [load_transport(name, address) for name, address in config.addresses()]
        self._started: list[Transport] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def start_up(self, listening: Callable[[Host], object] = lambda _: None) -> None:
        """Load the versions for new sessions, then listen.

        Args:
            listening: is called before it listens.

        Raises:
            PolicyBridgeError: an address cannot be used.

        """
        self._engine.attach(self._loop)
        if self._recorder is not None:
            self._recorder.start(self._loop.post, by_turns=True)
        if self._member.leads:
            self._tell_empty()
        self._engine.versions.preload()
        if self._member.leads:
            await self._publisher.numbering.begin(self._publisher.policies())
        if self._member.leads:
            await self._following.start()
        await self._listen(listening)
        works = [return_memory(), self._opener.make_forms_ahead()]
        if self._member.leads:
            watcher = FolderWatcher(self._engine.repository, self._publisher, self._own)
            works += [watcher.watch(), self._judge().watch()]
        self._tasks = [self._loop.create_task(work) for work in works]

    @property
    def _own(self) -> list[Path]:
        """The folders that are no copies."""
        theirs = {copy.folder.absolute() for copy in copies(self._config)}
        return [folder for folder in self._engine.repository.folders if folder not in theirs]

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on, in clients' form."""
        return [transport.address for transport in self._started]

    def _judge(self) -> Judge:
        place = self._config.ledger
        return Judge(
            self._publisher, self._engine.trials, None if place is None else (place, self._config.ledger_store)
        )

    def _tell_empty(self) -> None:
        for folder in self._own:
            # A new repository that is published into has no policy yet.
            new = self._config.allow_publish and not any(folder.glob("[!.]*"))
            empty = None if new else say_empty(folder)
            if empty is not None:
                _LOG.warning("%s", empty)

    async def shut_down(self) -> None:
        """Refuse new sessions, let running ones end, then close."""
        self._opener.drain()
        for task in self._tasks:
            task.cancel()
        self._following.stop()
        await self._drain()
        self._publisher.close()

    async def _listen(self, listening: Callable[[Host], object]) -> None:
        share = self._member.share
        host = Host(self._opener, self._publisher, self._loop, self._config, self._access, self._recorder, share)
        listening(host)
        try:
            for transport in self._transports:
                await transport.start(host)
                self._started.append(transport)
        except PolicyBridgeError:
            await self._stop(0)
            raise

    async def _drain(self) -> None:
        _LOG.info("draining: %d sessions", self._engine.sessions)
        stopping = asyncio.create_task(self._stop(self._config.grace))
        again = asyncio.create_task(self.signals.get())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await self._stop(0)
        again.cancel()
        await stopping

    async def _stop(self, grace: float) -> None:
        await asyncio.gather(*(transport.stop(grace) for transport in self._started))
