"""A TCP proxy that puts its server as far away as a round trip of some milliseconds; it can also break connections.

Each direction takes half of the round trip. The first bytes of a connection wait a whole one more, which the handshake
of TCP takes on a real way; a listening socket's kernel answers that at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

_PIECE: Final = 1 << 16


class Way:
    """The way to one server.

    Args:
        target: the server's port on this machine.
        round_trip: in seconds.
        most: the connection breaks once the server has sent so many bytes; ``None``: never.
        silent: connections are taken, and nothing of them is passed on; with ``most``: nothing more of the server's is.

    """

    def __init__(self, target: int, round_trip: float, most: int | None = None, *, silent: bool = False) -> None:
        self._target = target
        self._half = round_trip / 2
        self._most = most
        self._silent = silent

    async def serve(self, ready: Connection) -> None:
        """Listen on a free port, tell it, and pass on what comes."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = asyncio.get_running_loop().time()
        if self._silent and self._most is None:
            await reader.read()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        there = self._carry(reader, far_writer, begun + 2 * self._half, None)
        back = self._carry(far_reader, writer, begun, self._most)
        with suppress(OSError):
            await asyncio.gather(there, back)
        for each in (writer, far_writer):
            each.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begun: float, most: int | None
    ) -> None:
        """Send each piece half a round trip after it came, and none before ``begun`` and that."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        taking = asyncio.create_task(_take(reader, pieces, begun, self._half))
        sent = 0
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            sent += len(piece)
            late = most is not None and sent > most
            if not piece or (late and not self._silent):
                break
            if late:
                continue
            writer.write(piece)
            await writer.drain()
        taking.cancel()
        if most is not None:
            writer.transport.abort()
        elif writer.can_write_eof():
            writer.write_eof()


async def _take(
    reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]], begun: float, half: float
) -> None:
    loop = asyncio.get_running_loop()
    piece = b"."
    while piece:
        try:
            piece = await reader.read(_PIECE)
        except ConnectionError:
            piece = b""
        pieces.put_nowait((max(loop.time(), begun) + half, piece))


def _run(ready: Connection, way: Way) -> None:
    asyncio.run(way.serve(ready))


@contextmanager
def far(way: Way) -> Iterator[int]:
    """Run the proxy in a process of its own; give its port."""
    context = get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=_run, args=(its, way), daemon=True)
    process.start()
    its.close()
    try:
        yield mine.recv()
    finally:
        process.terminate()
        process.join()
