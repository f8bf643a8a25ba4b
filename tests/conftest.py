"""Real servers on free ports, for every test that needs one; and what holds for all tests."""

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.forked import COMMAND, forking, start_server
from tests.needs import needs_more


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the files that need a compiler or a framework")
    parser.addoption("--containers", action="store_true", help="run what needs containers, too: minutes, as root")
    parser.addoption(
        "--fresh", action="store_true", help="run each tutorial in an environment of its own, too: minutes"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out by ``--quick`` what would compile, or load a framework; such a file is not even imported."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if collection_path == _FRESH and not config.getoption("fresh"):
        return True
    if collection_path in _CONTAINERS and not config.getoption("containers"):
        return True
    return True if config.getoption("quick") and is_test and needs_more(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the Ray cluster: idle workers take others' last tests, and each would start its own."""
    items.sort(key=lambda item: "cluster" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Keep imported modules out of garbage collection: each pass over the frameworks would take half a second."""
    gc.freeze()


_CONTAINERS = [Path(__file__).parent / "docker" / f"test_{name}.py" for name in ("stack", "dist")]
_FRESH = Path(__file__).parent / "docs" / "test_fresh.py"


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> Iterator[None]:
    """Start every program with the signals that a terminal would give it.

    A shell ignores SIGINT in what it runs in the background, and nohup ignores SIGHUP. Programs inherit that, and
    ours leave an ignored signal ignored. A signal with a handler has its default action again in a program that is
    started.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    ignored = [number for number in handlers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, handlers[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def no_outer_make() -> None:
    """Forget the make that runs the tests: theirs would tell its folders, and rustc would look for its jobserver."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session", autouse=True)
def python_host() -> None:
    """Have ``policybridge run`` host compilers itself, even if this machine has a launcher installed."""
    os.environ["POLICYBRIDGE_LAUNCHER"] = ""


@pytest.fixture(scope="session", autouse=True)
def forked_servers(heeded_signals: None) -> None:  # noqa: ARG001 - servers inherit how signals are heeded
    """Begin to import a server: tests change the environment."""
    forking()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of this run that all its workers have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@dataclass
class RunningServer:
    """A ``policybridge serve`` that has printed its ready line.

    Attributes:
        others: its addresses but the one over gRPC and TCP.

    """

    process: subprocess.Popen[str]
    grpc: str
    socket: str
    others: list[str] = field(default_factory=list)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()


ServerFactory = Callable[..., RunningServer]


def command(*arguments: object) -> list[str]:
    return [*COMMAND, *map(str, arguments)]


@contextmanager
def running_server(
    repository: Path | None, folder: Path, *arguments: object, python: bool = True, before: Sequence[str] = ()
) -> Iterator[RunningServer]:
    """Serve ``repository`` (the bundled policies for ``None``) on a free port and a socket in ``folder``.

    ``before`` are the words of a program that runs the server.
    """
    policies = (
        ["--demo"] if repository is None else ["--repository", repository, *(["--allow-python"] if python else [])]
    )
    listen = ["--grpc", "127.0.0.1:0", "--socket", folder / "server.sock"]
    process = start_server(*policies, *listen, *arguments, before=before)
    assert process.stdout is not None
    try:
        word, _, addresses = process.stdout.readline().partition(" ")
        assert word == "ready", f"the server ended with {process.wait()}"
        grpc, *others = addresses.split()
        yield RunningServer(process, grpc, next(each for each in others if each.startswith("socket:")), others)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


@pytest.fixture
def server_factory() -> Iterator[ServerFactory]:
    """Start servers that end with the test: ``server_factory(repository, *more_arguments)``."""
    with ExitStack() as stack:

        def start(repository: Path | None, *arguments: object) -> RunningServer:
            # Not pytest's own folder: its path may be too long for a Unix socket.
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="pb-")))
            return stack.enter_context(running_server(repository, folder, *arguments))

        yield start
