"""A channel over TLS, with the decrypted bytes and the events of a plain socket."""

import asyncio
import logging
import select
import socket
import ssl
from contextlib import suppress
from typing import Final

from policybridge_server.access import ServerTls, TlsFiles
from policybridge_server.budget import PeerBudget
from policybridge_server.budget.work import Work
from policybridge_server.loop import Handler, Loop
from policybridge_server.transports.channel import SocketChannel

_LOG = logging.getLogger(__name__)

_RECORD: Final = 1 << 14
"""Bytes of the largest TLS record. A read gives the bytes of one."""


class TlsChannel(SocketChannel):
    """A connected, non-blocking socket with the server's side of TLS.

    The steps of the handshake are ``work``, because their arithmetic takes up to milliseconds. It does not hold the
    interpreter lock, so clients that reconnect again and again keep their share of the threads busy, and not the
    loop. Data sent before the end of the handshake waits. The handler closes a client that is too slow, as without TLS.

    Args:
        connection: wrapped for TLS; no byte of the handshake has been read yet.
        loop: the loop of its events.
        handler: gets the events after the handshake; EPOLLHUP if the handshake fails.
        work: of the client's peer.

    """

    def __init__(self, connection: ssl.SSLSocket, loop: Loop, handler: Handler, work: Work) -> None:
        super().__init__(connection, loop, self)
        self._tls = connection
        self._handler = handler
        self._work = work
        self._established = False
        self._shaking = False
        self._read_must_write = False
        self._take, self._put = self._decrypted, self._encrypt
        self._close = self._close_later

    def ready(self, events: int) -> None:
        """Go on with the handshake; after it, pass the events on."""
        if self._read_must_write:
            events = select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0)
        if self._established:
            self._handler.ready(events)
        elif not self._shaking:
            self._shaking = True
            # With EPOLLONESHOT a hang-up is reported once, and not in every turn while the thread works.
            self._loop.rewatch(self._incoming, select.EPOLLONESHOT)
            self._work.run(self._shake).add_done_callback(self._shaken)

    def _shake(self) -> Exception | None:
        """Do one step; give its error as a result, which no loop logs that ends meanwhile."""
        try:
            self._tls.do_handshake()
        except Exception as error:
            return error
        return None

    def _shaken(self, step: "asyncio.Future[Exception | None]") -> None:
        error = step.result()
        self._shaking = False
        if not self.is_open:
            self._connection.close()
        elif error is None:
            self._establish()
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.rewatch(self._incoming, select.EPOLLIN)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.rewatch(self._incoming, select.EPOLLOUT)
        else:
            self._refuse(error)

    def _establish(self) -> None:
        self._established = True
        self._watch()
        # OpenSSL may have read the first bytes together with the end of the handshake.
        self._handler.ready(select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))

    def _refuse(self, reason: object) -> None:
        if self.is_open and not self._established:
            _LOG.info("a TLS handshake failed: %s", reason)
            self._handler.ready(select.EPOLLHUP)

    def _decrypted(self, wanted: int) -> bytes:
        taken = bytearray()
        size = wanted
        try:
            while size > 0 and (data := self._read_record(size)):
                taken += data
                # epoll does not report OpenSSL's buffer: read it, and another record only after a full one.
                size = self._tls.pending() or (wanted - len(taken) if len(data) == _RECORD else 0)
        except BlockingIOError:
            if not taken:
                raise
        return bytes(taken)

    def _read_record(self, wanted: int) -> bytes:
        must_write = False
        try:
            return self._tls.recv(wanted)
        except ssl.SSLWantReadError as error:
            raise BlockingIOError from error
        except ssl.SSLWantWriteError as error:
            must_write = True
            raise BlockingIOError from error
        finally:
            if must_write is not self._read_must_write:
                self._read_must_write = must_write
                self._watch()

    def _encrypt(self, data: bytes | bytearray) -> int:
        if not self._established:
            raise BlockingIOError
        sent = 0
        try:
            with memoryview(data) as view:
                while sent < len(data):
                    sent += self._tls.send(view[sent:])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            if not sent:
                raise BlockingIOError from error
        return sent

    def _watch(self) -> None:
        if not self._established:
            return
        if self._read_must_write and self.is_open:
            # Only a write lets OpenSSL read on: watching for input would wake the loop again and again.
            self._loop.rewatch(self._incoming, select.EPOLLOUT)
        else:
            super()._watch()

    def finish(self) -> None:
        """Tell the client that nothing more will be sent; its own bytes can still be received."""
        if not self._established:
            self._refuse("the connection ends before it")
            return
        with suppress(OSError, ValueError):
            # It raises SSLWantReadError, an OSError, because the client's own end is not there yet.
            self._tls.unwrap()
        with suppress(OSError):
            # Not the SSLSocket's method, which would forget TLS.
            socket.socket.shutdown(self._tls, socket.SHUT_WR)

    def _close_later(self) -> None:
        # A thread that works on the handshake still uses the descriptor; `_shaken` closes it then.
        if not self._shaking:
            self._connection.close()


class TlsDoor:
    """Wraps the connections of one port.

    Args:
        files: the server's TLS files.
        protocols: the port's protocols, by their names in ALPN.
        loop: the loop of the connections.

    Raises:
        InvalidError: the files cannot be used.

    """

    def __init__(self, files: TlsFiles, protocols: list[str], loop: Loop) -> None:
        self._tls = ServerTls(files, protocols)
        self._loop = loop

    def channel(self, connection: socket.socket, handler: Handler, peer: PeerBudget) -> SocketChannel:
        """Make the channel of a connection that was just accepted; its handshake is work of ``peer``."""
        wrapped = self._tls.newest().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return TlsChannel(wrapped, self._loop, handler, peer.work)
