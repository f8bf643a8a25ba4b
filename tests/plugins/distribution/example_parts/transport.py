"""A transport over TCP: a line ``POLICY NUMBER`` in, a line with the advice out; each line is one session."""

import asyncio

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, Values, pack
from policybridge_server.transports.contract import Host

SIGNATURE = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))


class LineTransport:
    """Listens on ``HOST:PORT``."""

    def __init__(self, address: str) -> None:
        self._name, _, port = address.rpartition(":")
        self._port = int(port)

    @property
    def address(self) -> str:
        """The address with the real port."""
        return f"line:{self._name}:{self._port}"

    async def start(self, host: Host) -> None:
        """Listen."""
        self._host = host
        self._server = await asyncio.start_server(self._serve, self._name, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self, grace: float) -> None:
        """Listen no more."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            policy, number = line.decode().split()
            try:
                said = str(await self._ask(policy, int(number)))
            except PolicyBridgeError as error:
                said = f"error: {error}"
            writer.write(f"{said}\n".encode())
        writer.close()

    async def _ask(self, policy: str, number: int) -> int:
        answer = _Answer()
        session = await self._host.opener.open(PolicyReference(policy), SessionOptions(), answer)
        try:
            session.bind(SIGNATURE)
            session.submit(pack(SIGNATURE.features, {"x": number}))
            advice = await answer.advice
        finally:
            session.close()
        return int(advice["advice"].item())


class _Answer:
    """The sink of one session's one answer."""

    def __init__(self) -> None:
        self.advice: asyncio.Future[Values] = asyncio.get_running_loop().create_future()

    def answer(self, advice: Values, log_probability: float | None) -> None:
        """Take the advice."""
        self.advice.set_result(advice)

    def fail(self, error: PolicyBridgeError) -> None:
        """Take the news that there is none."""
        self.advice.set_exception(error)
