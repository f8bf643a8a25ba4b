"""Servers with the faults that the alerts are for, each a real one."""

import os
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from policybridge_client import open_runner
from policybridge_client.connection import connect
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, Outcome, TensorSpec
from tests.repositories import answering, write_python
from tests.serving import started

X = TensorSpec("x", ElementType.INT64, (1,))
ADVICE = TensorSpec("advice", ElementType.INT64, (1,))
LARGE = TensorSpec("large", ElementType.INT64, (1 << 22,))
"""Nine observations of it exceed the room that a ledger has in memory."""

DESCRIPTORS = 400
"""Of which a server keeps 64 back, so that clients may take 84 %."""

_WAITS = "import time\nclass Policy:\n    def evaluate(self, observation, session):\n        {}\n        return 1\n"


@dataclass
class Faulty:
    """A server.

    Attributes:
        http: its address, as Prometheus takes it.
        alerts: those that its fault must raise, and no others.
        before: its metrics when it had just started.

    """

    http: str
    alerts: set[str]
    before: str = field(repr=False)

    def metrics(self) -> str:
        """Give what it counts now; nothing if it is gone."""
        with suppress(OSError), urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as reply:
            return str(reply.read().decode())
        return ""


class World:
    """A folder with a server in it, and what happens to that one.

    Args:
        folder: for all files; its path is short enough for a Unix socket.
        stack: ends all with the test.

    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.socket = f"socket:{folder / 's'}"
        self.stack = stack

    def policy(self, name: str, source: str, toml: str = "") -> None:
        write_python(self.folder / "policies", name, source, toml)

    def serve(self, *arguments: object, alerts: tuple[str, ...] = (), descriptors: int | None = None) -> Faulty:
        """Serve, by default the policies of this world."""
        limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        policies = ("--repository", self.folder / "policies") if (self.folder / "policies").is_dir() else ("--demo",)
        words = (*policies, "--allow-python", "--socket", self.folder / "s", *arguments, "--http", "127.0.0.1:0")
        log = self.folder / "log"
        self.process, addresses = self.stack.enter_context(started(*words, before=limit, log=log))
        # Nothing of these servers is to be drained.
        self.stack.callback(self.process.kill)
        self.addresses = addresses
        server = Faulty(addresses[-1].removeprefix("http:"), {f"PolicyBridge{name}" for name in alerts}, "")
        server.before = server.metrics()
        return server

    def ask(self, policy: str, times: int = 1, feature: TensorSpec = X) -> str:
        """Ask in one session; give its id."""
        with open_runner(self.socket, policy=policy, features=[feature], advice=ADVICE) as runner:
            for _ in range(times):
                runner.evaluate()
            return runner.session_id

    def report(self, policy: str, *statuses: str) -> None:
        """Report an outcome of one session for each status."""
        with closing(connect(self.socket)) as connection:
            for status in statuses:
                connection.report_outcome(self.ask(policy), Outcome({}, status))

    def repeat(self, work: Callable[[], object]) -> None:
        """Do something once, and then again and again until the test ends."""
        work()
        ending = Event()

        def run() -> None:
            while not ending.wait(0.2):
                with suppress(PolicyBridgeError):
                    work()

        thread = Thread(target=run)
        thread.start()
        self.stack.callback(thread.join)
        self.stack.callback(ending.set)


def well(world: World) -> Faulty:
    world.policy("good", answering("1"))
    server = world.serve("--ledger", world.folder / "ledger.db")
    world.ask("good", 100)
    world.repeat(lambda: world.report("good", "ok", "failed"))
    return server


def gone(world: World) -> Faulty:
    server = world.serve(alerts=("Down",))
    world.process.kill()
    world.process.wait(60)
    return server


def without_policies(world: World) -> Faulty:
    (world.folder / "policies").mkdir()
    return world.serve(alerts=("NotReady",))


def without_database(world: World) -> list[object]:
    """Give the options for a ledger whose database is away."""
    # Bound, but nobody listens: each attempt to connect is refused.
    bound = world.stack.enter_context(socket.socket())
    bound.bind(("127.0.0.1", 0))
    url = f"postgresql://user@127.0.0.1:{bound.getsockname()[1]}/ledger"
    return ["--ledger", url, "--ledger-spool", world.folder / "spool"]


def with_a_silent_worker_and_without_its_database(world: World) -> Faulty:
    more = ("--workers", 2, "--decision-timeout", 3600)
    server = world.serve(*more, *without_database(world), alerts=("WorkerSilent", "LedgerAway"))
    parent = world.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGSTOP)
    return server


def with_a_hanging_version(world: World) -> Faulty:
    # It hangs when it is loaded again, too, so that the server cannot mend it.
    mark = str(world.folder / "asked")
    hangs = f"import os\nif os.path.exists({mark!r}):\n    import time; time.sleep(3600)\n"
    world.policy("hangs", hangs + _WAITS.format(f"open({mark!r}, 'w'); time.sleep(3600)"))
    server = world.serve("--decision-timeout", 1, "--load-timeout", 3600, alerts=("VersionTroubled", "ServerFaults"))
    with suppress(PolicyBridgeError):
        world.ask("hangs")
    return server


def with_bad_policies(world: World) -> Faulty:
    """One fails, another one is slow, builds fall back, and a new version is refused."""
    world.policy("good", answering("1"))
    world.policy("slow", _WAITS.format("time.sleep(0.15)"))
    world.policy("broken", answering("1 // 0"))
    write_python(world.folder / "new", "bad", "raise SystemError")
    alerts = ("PolicyFails", "ServerFaults", "Fallbacks", "Slow", "PublicationRefused")
    more = ("--allow-publish", "--grpc", "127.0.0.1:0", "--ledger", world.folder / "ledger.db")
    server = world.serve(*more, alerts=alerts)
    with suppress(PolicyBridgeError):
        world.ask("broken")
    with RepositoryClient(world.addresses[0], timeout=60) as repository, suppress(PolicyBridgeError):
        repository.publish("good", world.folder / "new" / "bad" / "1")
    world.repeat(lambda: world.report("good", *["ok"] * 9, "fallback"))
    world.repeat(lambda: world.ask("slow", 3))
    return server


def with_a_stalling_loop(world: World) -> Faulty:
    world.policy("stalls", _WAITS.format("time.sleep(0.15)"), "inline = true\n")
    server = world.serve(alerts=("LoopStalls", "Slow"))
    world.repeat(lambda: world.ask("stalls", 20))
    return server


def with_a_ledger_that_is_moved_away(world: World) -> Faulty:
    world.policy("good", answering("1"))
    ledger = world.folder / "ledger.db"
    server = world.serve("--ledger", ledger, alerts=("LedgerFails", "LedgerLags", "LedgerLoses"))
    ledger.rename(world.folder / "elsewhere.db")
    world.ask("good", 9, LARGE)
    return server


def without_its_database_and_with_too_many_clients(world: World) -> Faulty:
    more = (*without_database(world), "--hello-timeout", 3600)
    server = world.serve(*more, alerts=("LedgerAway", "Descriptors"), descriptors=DESCRIPTORS)
    for _ in range(DESCRIPTORS):
        client = world.stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(world.folder / "s"))
    return server


_ALL: list[Callable[[World], Faulty]] = [
    well,
    gone,
    without_policies,
    with_a_silent_worker_and_without_its_database,
    with_a_hanging_version,
    with_bad_policies,
    with_a_stalling_loop,
    with_a_ledger_that_is_moved_away,
    without_its_database_and_with_too_many_clients,
]


@contextmanager
def faulty_servers() -> Iterator[list[Faulty]]:
    """Start a server with each fault, and one without."""
    with ExitStack() as stack:
        yield [make(World(Path(stack.enter_context(TemporaryDirectory(prefix="pb-"))), stack)) for make in _ALL]
