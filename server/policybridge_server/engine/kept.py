"""Waiting for the ledger."""

import asyncio
from collections.abc import Callable

from policybridge_serdes.errors import PolicyBridgeError
from policybridge_server.engine.recorder import Reported


async def kept(report: Callable[[Reported], None]) -> None:
    """Wait until the ledger holds what ``report`` reports.

    Raises:
        PolicyBridgeError: it does not.

    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reported(error: PolicyBridgeError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    report(reported)
    await future
