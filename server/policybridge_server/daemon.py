"""The daemon: starts up, serves until a signal comes, shuts down."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO, cast

from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_core.plugins import load_part
from policybridge_server.config import ServerConfig
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.tracing import Tracer
from policybridge_server.following.places import copies, hold_copies, own_folders
from policybridge_server.ledger.clock import Clock, SystemClock
from policybridge_server.ledger.contract import Bounds, SharedLedger, load_ledger
from policybridge_server.ledger.place import parse_place
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.ledger.spool import spool_of
from policybridge_server.loop import Loop
from policybridge_server.output import own_output
from policybridge_server.reloading import Configuration, has_terminal, terminal_gone
from policybridge_server.repository import writable
from policybridge_server.repository.lock import lock_for_changes
from policybridge_server.serving import Daemon, make_engine
from policybridge_server.systemd import given_addresses, notify, notify_reloading

_LOG = logging.getLogger(__name__)

SWITCH_SECONDS: Final = 5e-4
"""For how long a thread keeps the interpreter lock: Python's own 5 ms would delay every decision while a version is
loaded in another thread."""


def serve(
    config: ServerConfig, clock: Clock | None = None, *, reread: Callable[[], ServerConfig] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends running sessions at once. SIGHUP reloads: `Configuration`.

    Args:
        config: the configuration.
        reread: reads the configuration again; ``None``: it cannot be reread.
        clock: the ledger's clock; ``None``: the machine's.

    Raises:
        PolicyBridgeError: a repository, an address or the ledger cannot be used.

    """
    prepare_interpreter()
    with (
        own_output() as output,
        lock_for_changes(changed(config)),
        hold_copies(config),
        make_recorder(config, clock) as recorder,
        make_tracer(config) as tracer,
    ):
        engine = make_engine(config, recorder, tracer)
        with asyncio.Runner(loop_factory=lambda: Loop(engine.flush, config.spin / 1e6, engine.counters)) as runner:
            loop = cast("Loop", runner.get_loop())
            runner.run(_Alone(config, engine, loop, recorder, reread or (lambda: config)).run(output))
        engine.close()


def prepare_interpreter() -> None:
    """Keep Python's own pauses short, for this whole process; call it when the server is imported."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # Modules are never garbage, and a collection that visits their objects delays every decision.
    gc.freeze()


def changed(config: ServerConfig) -> list[Path]:
    """Give the repositories that clients may publish into."""
    if not config.allow_publish:
        return []
    folders = writable(own_folders(config))
    if not folders and not copies(config):
        raise InvalidError("--allow-publish: the policies of --demo are not published into; give --repository DIR too")
    return folders


@contextmanager
def make_recorder(
    config: ServerConfig, clock: Clock | None = None, *, shared: bool = False, drops: bool = True
) -> Iterator[LedgerRecorder | None]:
    """Make the recorder for the configured ledger, and close it in the end; ``None`` without a ledger.

    Args:
        config: the server's configuration.
        clock: the ledger's clock; ``None``: the machine's.
        shared: several processes write the ledger.
        drops: whether this process applies the retention.

    """
    if config.ledger is None:
        yield None
        return
    clock = clock or SystemClock()
    place = parse_place(config.ledger)
    limits = (config.ledger_max_bytes, config.ledger_max_age) if drops else (None, None)
    bounds = Bounds(*limits, clock, spool_of(place, config.ledger_spool))
    ledger = load_ledger(place, config.ledger_store)
    store = cast("SharedLedger", ledger).join_store(place, bounds) if shared else ledger.open_store(place, bounds)
    with closing(LedgerRecorder(store, clock)) as recorder:
        yield recorder


@contextmanager
def make_tracer(config: ServerConfig) -> Iterator[Tracer | None]:
    """Make the tracer that the configuration asks for, and close it in the end."""
    if config.traces is None:
        yield None
        return
    part = load_part("policybridge_server.telemetry.tracing:OtlpTracer [otel]", "--traces")
    tracer = cast("Callable[[ServerConfig], Tracer]", part)(config)
    with closing(tracer):
        yield tracer


class _Alone(Daemon):
    """A server of one process: it heeds the signals itself."""

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        loop: Loop,
        recorder: LedgerRecorder | None,
        reread: Callable[[], ServerConfig],
    ) -> None:
        super().__init__(config, engine, loop, recorder)
        self._configuration = Configuration(config, reread)

    async def run(self, output: TextIO) -> None:
        watch_signals(self._loop, self.signals, self._reload)
        tell_unclaimed(self._config)
        await self.start_up()
        try:
            say(f"ready {' '.join(self.addresses)}", output)
            notify("READY=1", f"STATUS=serves {len(self._engine.repository.policies())} policies")
            await self.signals.get()
        finally:
            notify("STOPPING=1")
            await self.shut_down()

    def _reload(self) -> None:
        notify_reloading()
        self.reloading.take(self._configuration.reread())
        notify("READY=1")


def watch_signals(
    loop: asyncio.AbstractEventLoop, signals: "asyncio.Queue[signal.Signals]", reload: Callable[[], object]
) -> None:
    """Put SIGTERM and SIGINT into ``signals``, and call ``reload`` at SIGHUP, unless a terminal has hung up."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    had_terminal = not ignored and has_terminal()

    def hang_up() -> None:
        if terminal_gone(had_terminal):
            signals.put_nowait(signal.SIGHUP)
        else:
            reload()

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def tell_unclaimed(config: ServerConfig) -> None:
    """Warn of sockets that systemd listens on and that nothing is served on."""
    # The address of a pipe may be a table of the configuration.
    known = [address for _, address in config.addresses() if isinstance(address, str)]
    unclaimed = set(given_addresses()) - {address.removeprefix("unix:") for address in known}
    if unclaimed:
        _LOG.warning("systemd listens on %s, and no option names that", ", ".join(sorted(unclaimed)))


def say(line: str, output: TextIO) -> None:
    """Write a line to the standard output.

    Raises:
        UnavailableError: it cannot be written.

    """
    try:
        output.write(f"{line}\n")
        output.flush()
    except OSError as error:
        # Python would try once more at its end, and change the exit status.
        with suppress(OSError):
            output.close()
        raise UnavailableError(f"standard output cannot be written: {error.strerror}") from error
