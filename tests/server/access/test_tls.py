"""TLS and mTLS on every TCP port: who is let in, what is refused and how, and files that change."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

import grpc
import pytest

from policybridge_client import Credentials, connect
from policybridge_client.contract import ClientSession
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from tests.certificates import Authority, Identity
from tests.server.access.doors import GRPC, Doors, evaluated, opened, refused

DOORS = (*GRPC, "http")
ONE = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("one", ElementType.INT64))


class Parties:
    """A server's and its clients' certificates: of one authority, of another, and expired."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = Authority(folder / "ours"), Authority(folder / "others")
        self.server, self.client = self.ours.issue("server"), self.ours.issue("client")
        self.stranger = self.others.issue("stranger")
        self.expired = self.ours.issue("expired", expired=True)

    def channel(self, address: str, shown: Identity | None, ca: Path | None = None) -> grpc.Channel:
        key, chain = (None, None) if shown is None else (shown.key.read_bytes(), shown.certificate.read_bytes())
        credentials = grpc.ssl_channel_credentials((ca or self.ours.ca).read_bytes(), key, chain)
        return grpc.secure_channel(address, credentials)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return Parties(tmp_path_factory.mktemp("parties"))


def tls_of(server: Identity, *client_ca: Path) -> list[object]:
    more = [word for path in client_ca for word in ("--tls-client-ca", path)]
    return ["--tls-certificate", server.certificate, "--tls-key", server.key, *more]


@pytest.fixture(scope="module")
def mutual(parties: Parties, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Serve clients with a certificate of ours."""
    given = (*tls_of(parties.server, parties.ours.ca), "--hello-timeout", 2)
    with opened(tmp_path_factory.mktemp("mutual"), *given, doors=DOORS) as doors:
        yield doors


@pytest.mark.parametrize("door", GRPC)
def test_a_client_with_a_certificate_of_the_authority_is_let_in(parties: Parties, mutual: Doors, door: str) -> None:
    with parties.channel(mutual.addresses[door], parties.client) as channel:
        assert evaluated(channel) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("door", GRPC)
@pytest.mark.parametrize("shown", [None, "stranger", "expired"])
def test_a_client_without_a_certificate_or_with_a_wrong_or_an_expired_one_is_unavailable(
    parties: Parties, mutual: Doors, door: str, shown: str | None
) -> None:
    with parties.channel(mutual.addresses[door], getattr(parties, shown) if shown else None) as channel:
        assert evaluated(channel) == "UNAVAILABLE"


@pytest.mark.parametrize("shown", ["client", "none", "stranger", "expired"])
def test_http_wants_the_same_certificates(parties: Parties, mutual: Doors, shown: str) -> None:
    context = ssl.create_default_context(cafile=parties.ours.ca)
    if shown != "none":
        identity: Identity = getattr(parties, shown)
        context.load_cert_chain(identity.certificate, identity.key)
    host, _, port = mutual.addresses["http"].rpartition(":")
    answer = _http(context, host, int(port))
    assert answer.startswith(b"HTTP/1.1 200") if shown == "client" else answer == b""


def _http(context: ssl.SSLContext, host: str, port: int) -> bytes:
    """Give the first bytes of an answer; none where TLS fails, of which the client may learn only later."""
    connection = socket.create_connection((host, port), 60)
    with (
        connection,
        suppress(ssl.SSLError, ConnectionError),
        context.wrap_socket(connection, server_hostname=host) as tls,
    ):
        tls.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return tls.recv(1000)
    return b""


def _shaken(context: ssl.SSLContext, address: str, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    """Shake hands, and read what the server sends first, behind which a ticket may come."""
    host, _, port = address.rpartition(":")
    tls = context.wrap_socket(socket.create_connection((host, int(port)), 60), server_hostname=host, session=session)
    tls.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with suppress(ssl.SSLError, ConnectionError):
        tls.recv(1000)
    return tls


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def _context(parties: Parties, door: str, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=parties.ours.ca)
    context.load_cert_chain(parties.client.certificate, parties.client.key)
    context.set_alpn_protocols(["h2" if door in GRPC else "http/1.1"])
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_a_session_of_tls_1_3_is_not_resumed(parties: Parties, mutual: Doors, door: str) -> None:
    context = _context(parties, door, ssl.TLSVersion.TLSv1_3)
    with _shaken(context, mutual.addresses[door]) as first:
        session = first.session
    with _shaken(context, mutual.addresses[door], session) as second:
        assert not second.session_reused


@pytest.mark.parametrize("version", VERSIONS)
def test_every_port_speaks_tls_1_2_and_1_3_and_resumes_no_session_after_a_file_has_changed(
    parties: Parties, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    held = Identity(tmp_path / "server.pem", tmp_path / "server.key")
    copy(parties.server.certificate, held.certificate)
    copy(parties.server.key, held.key)
    with opened(tmp_path, *tls_of(held, parties.ours.ca), doors=DOORS) as doors:
        contexts = {door: _context(parties, door, version) for door in DOORS}
        sessions: dict[str, ssl.SSLSession | None] = {}
        for door, context in contexts.items():
            with _shaken(context, doors.addresses[door]) as first:
                assert first.version() == version.name.replace("_", ".")
                sessions[door] = first.session
        fresh = parties.ours.issue("fresh")
        copy(fresh.key, held.key)
        copy(fresh.certificate, held.certificate)
        for door, context in contexts.items():
            with _shaken(context, doors.addresses[door], sessions[door]) as second:
                assert not second.session_reused, door


@pytest.mark.parametrize("door", DOORS)
def test_no_port_speaks_tls_1_1(parties: Parties, mutual: Doors, door: str) -> None:
    host, _, port = mutual.addresses[door].rpartition(":")
    words = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
    words += ["-cert", str(parties.client.certificate), "-key", str(parties.client.key)]
    done = subprocess.run(words, input="", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode
    assert "Cipher is (NONE)" in done.stdout


@pytest.mark.parametrize("door", GRPC)
def test_a_client_refuses_a_server_of_another_authority(parties: Parties, mutual: Doors, door: str) -> None:
    with parties.channel(mutual.addresses[door], parties.client, parties.others.ca) as channel:
        assert evaluated(channel) == "UNAVAILABLE"


@pytest.mark.parametrize("door", GRPC)
def test_a_client_without_tls_is_refused(mutual: Doors, door: str) -> None:
    with grpc.insecure_channel(mutual.addresses[door]) as channel:
        assert evaluated(channel) == "UNAVAILABLE"


def test_clients_that_do_not_finish_their_handshake_delay_nobody(parties: Parties, mutual: Doors) -> None:
    address = mutual.addresses["grpc"]
    host, _, port = address.rpartition(":")
    with ExitStack() as silent:
        for first in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") * 5:
            connection = silent.enter_context(closing(socket.create_connection((host, int(port)))))
            connection.sendall(first)
        with parties.channel(address, parties.client) as channel:
            assert evaluated(channel) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half of a hello"])
def test_a_client_that_does_not_finish_its_handshake_is_given_up(mutual: Doors, first: bytes) -> None:
    host, _, port = mutual.addresses["grpc"].rpartition(":")
    with closing(socket.create_connection((host, int(port)), 60)) as silent:
        silent.sendall(first)
        assert silent.recv(100) == b""


@pytest.mark.parametrize("door", GRPC)
def test_certificates_that_change_under_load_drop_no_session(parties: Parties, door: str) -> None:
    """The authority changes with them, so that a new connection shows which certificate it got."""
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        first, second = Authority(folder / "first"), Authority(folder / "second")
        served = first.issue("server")
        with opened(folder, *tls_of(served), doors=(door,)) as doors, ExitStack() as stack:
            address = f"grpcs:{doors.addresses[door]}"
            sessions = [_session(stack, address, first.ca) for _ in range(4)]
            load = _Load(sessions)
            served.replace_by(second.issue("server"))
            load.go_on()
            renewed = _session(stack, address, second.ca)
            assert _ask(renewed) == 1
            with parties.channel(doors.addresses[door], None, first.ca) as channel:
                assert evaluated(channel) == "UNAVAILABLE"
            assert load.stop() == []
            assert doors.process.poll() is None


@pytest.mark.parametrize("door", DOORS)
def test_a_certificate_that_cannot_be_used_leaves_the_one_before(parties: Parties, tmp_path: Path, door: str) -> None:
    ours = Authority(tmp_path / "own")
    served = ours.issue("server")
    with opened(tmp_path, *tls_of(served), doors=(door,)) as doors:
        served.key.write_text("no key")
        address = doors.addresses[door]
        if door == "http":
            host, _, port = address.rpartition(":")
            assert _http(ssl.create_default_context(cafile=ours.ca), host, int(port)).startswith(b"HTTP/1.1 200")
        else:
            with parties.channel(address, None, ours.ca) as channel:
                assert evaluated(channel) == "INVALID_ARGUMENT"
        assert "those before stay" in (tmp_path / "log").read_text()


def _session(stack: ExitStack, address: str, ca: Path) -> ClientSession:
    connection = stack.enter_context(closing(connect(address, timeout=60, credentials=Credentials(ca=ca))))
    return stack.enter_context(closing(connection.open(PolicyReference("one"), ONE, SessionOptions())))


def _ask(session: ClientSession) -> int:
    return int(session.evaluate(pack(ONE.features, {"x": 0}))["one"][0, 0])


class _Load:
    """Asks on each session in a thread of its own, until it is stopped."""

    def __init__(self, sessions: list[ClientSession]) -> None:
        self._failures: list[BaseException] = []
        self._ending = threading.Event()
        self._asked = [threading.Semaphore(0) for _ in sessions]
        self._threads = [
            threading.Thread(target=self._run, args=each) for each in zip(sessions, self._asked, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        self.go_on()

    def _run(self, session: ClientSession, asked: threading.Semaphore) -> None:
        try:
            while not self._ending.is_set():
                assert _ask(session) == 1
                asked.release()
        except BaseException as error:
            self._failures.append(error)
            raise

    def go_on(self) -> None:
        """Wait until every session has been answered twenty times more."""
        for asked in self._asked:
            for _ in range(20):
                assert asked.acquire(timeout=60), self._failures

    def stop(self) -> list[BaseException]:
        self.go_on()
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        return self._failures


def test_files_that_are_no_tls_are_refused_at_the_start_with_their_reason(parties: Parties, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    serve = ("--repository", tmp_path / "empty", "--grpc", "127.0.0.1:0", "--tls-certificate")
    pem, key = parties.server.certificate, parties.server.key
    assert "both --tls-certificate and --tls-key" in refused(*serve, pem)
    assert "cannot be read: No such file" in refused(*serve, pem, "--tls-key", tmp_path / "absent")
    assert "KEY_VALUES_MISMATCH" in refused(*serve, pem, "--tls-key", parties.client.key)
    (open_key := tmp_path / "open.key").write_bytes(key.read_bytes())
    open_key.chmod(0o644)
    assert "has the mode 0644, so that others can use it" in refused(*serve, pem, "--tls-key", open_key)


def test_a_key_with_a_password_is_refused_without_asking_for_it(parties: Parties, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    words: list[str | Path] = [
        "openssl",
        "pkey",
        "-aes256",
        "-passout",
        "pass:secret",
        "-in",
        parties.server.key,
        "-out",
        locked,
    ]
    subprocess.run(words, check=True)
    locked.chmod(0o600)
    serve = ("--repository", tmp_path, "--grpc", "127.0.0.1:0", "--tls-certificate", parties.server.certificate)
    assert "the key has a password" in refused(*serve, "--tls-key", locked)
