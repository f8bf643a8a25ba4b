"""The suite of all clients for a list of servers whose first one is silent, leaves or is another program."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from policybridge_client.contract import Connection
from policybridge_core.errors import DeadlineError, PolicyBridgeError, UnavailableError
from policybridge_serdes import Outcome, PolicyReference, SessionOptions
from tests.client.accepting import accepting
from tests.client.hostile_peer import FAULTS, SILENCES, hostile
from tests.client.test_hostile_grpc import answering
from tests.conftest import RunningServer, running_server
from tests.server.publishing.policies import SIGNATURE, ask, write_policy

ADDER: Final = PolicyReference.parse("adder")
SHORT: Final = 3.0
"""Seconds to wait for the first server; the second one has to answer within them on a busy machine."""

AWAY_ERRORS: Final = (UnavailableError, DeadlineError)

Act = Callable[[socket.socket], None]
Connect = Callable[..., AbstractContextManager[Connection]]
"""``connect(address, timeout=…)``"""


def _leave(peer: socket.socket) -> None:
    peer.recv(1 << 16)
    peer.shutdown(socket.SHUT_RDWR)


def _half(peer: socket.socket) -> None:
    peer.recv(1 << 16)
    peer.sendall(b'{"session":"s","pol')
    peer.shutdown(socket.SHUT_RDWR)


def _trickle(peer: socket.socket) -> None:
    peer.sendall(b'{"session":"')
    while not threading.Event().wait(0.1):
        peer.sendall(b"s")


AWAY: Final[Mapping[str, Act]] = {
    "it never answers": lambda _: None,
    "it closes at once": lambda peer: peer.shutdown(socket.SHUT_RDWR),
    "it closes when it is asked": _leave,
    "it closes within its answer": _half,
    "it answers byte by byte": _trickle,
}
"""On a socket: no answer comes."""

FOREIGN: Final = {
    "a page": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(9) + b"\n",
    "no end": b"x" * (1 << 21),
    "another object": b"{}\n",
    "no list of kinds": b'{"session":"s","policy":"p","version":1,"digest":"sha256:0","decides":{"a":1}}\n',
    "kinds that are no names": b'{"session":"s","policy":"p","version":1,"digest":"sha256:0","decides":["a",1]}\n',
}
"""On a socket: answers of other programs."""


LOUD = b'{"error":{"status":3,"message":"a\\u001b[31m\\n\\u0085b' + b"y" * 900_000 + b'"}}\n'
"""A server's answer whose message is long, and has control characters."""


def loud(peer: socket.socket) -> None:
    peer.recv(1 << 16)
    peer.sendall(LOUD)


def check_is_one_short_line(said: str) -> None:
    """Check that a compiler's message about `loud` is one line without control characters."""
    (line,) = said.splitlines()
    assert " a [31m  by" in line
    assert line.isprintable()
    assert len(line) < 5_000


@contextmanager
def acting(act: Act) -> Iterator[str]:
    """Serve each connection so on a socket until the test is over; give the address."""
    with TemporaryDirectory(prefix="pb-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/first")
        listener.listen()
        with accepting(listener, act):
            yield f"socket:{folder}/first"


class FirstServerContract:
    """The client asks the next server, or gives an error of ours."""

    @pytest.fixture(scope="class")
    @classmethod
    def second(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
        """Give a server whose policy adds 1."""
        folder = tmp_path_factory.mktemp("second")
        write_policy(folder / "policies", number=1)
        with running_server(folder / "policies", folder, "--ledger", folder / "ledger.db") as running:
            yield running

    @pytest.fixture(autouse=True)
    def _forgetful(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    @pytest.fixture
    def connect(self) -> Connect:
        """Make connections of the client."""
        raise NotImplementedError

    @pytest.mark.parametrize("act", AWAY)
    def test_where_the_first_socket_gives_no_answer_the_next_server_is_asked(
        self, connect: Connect, act: str, second: RunningServer
    ) -> None:
        with acting(AWAY[act]) as first:
            check_next_is_asked(connect, first, second)

    @pytest.mark.parametrize("silence", SILENCES)
    def test_where_the_first_grpc_server_gives_no_answer_the_next_one_is_asked(
        self, connect: Connect, silence: str, second: RunningServer
    ) -> None:
        with hostile(answering(SILENCES[silence], opens=False)) as first:
            check_next_is_asked(connect, first, second)

    @pytest.mark.parametrize("answer", FOREIGN)
    def test_an_answer_of_another_program_is_an_error_that_shows_it_and_no_other_server_is_asked(
        self, connect: Connect, answer: str, second: RunningServer
    ) -> None:
        def act(peer: socket.socket) -> None:
            peer.recv(1 << 16)
            peer.sendall(FOREIGN[answer])

        with (
            acting(act) as first,
            connect(f"{first},{second.grpc}", timeout=60) as several,
            pytest.raises(PolicyBridgeError, match=r"does not follow the protocol|a line of more than"),
        ):
            several.open(ADDER, SIGNATURE, SessionOptions())

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_first_grpc_server_at_fault_is_an_error_of_ours_or_leads_to_the_next_one_at_once(
        self, connect: Connect, fault: str, second: RunningServer
    ) -> None:
        with (
            hostile(answering(FAULTS[fault], opens=False)) as first,
            connect(f"{first},{second.grpc}", timeout=20) as several,
        ):
            answer: object = None
            try:
                answer = ask(several.open(ADDER, SIGNATURE, SessionOptions()))
            except PolicyBridgeError as error:
                answer = error
        assert answer == 1 or (isinstance(answer, PolicyBridgeError) and not isinstance(answer, AWAY_ERRORS)), answer


def check_next_is_asked(connect: Connect, first: str, second: RunningServer) -> None:
    with connect(f"{first},{second.grpc}", timeout=SHORT) as several:
        session = several.open(ADDER, SIGNATURE, SessionOptions())
        assert ask(session) == 1
        name = session.id
        session.close()
        several.report_outcome(name, Outcome({"text": 1.0}))
