"""Messages between workers: the parent passes them on, because workers know only the parent."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.repository import StoredPolicy
from policybridge_server.telemetry.merging import merged
from policybridge_server.workers.line import LineClosedError
from policybridge_server.workers.listening import Listening
from policybridge_server.workers.member import Member
from policybridge_server.workers.turn import Turn
from policybridge_server.workers.welcome import Welcome

_SOON: Final = 2.0
"""Seconds for a worker to send its numbers. After them the asking worker gets those of the others."""


class Exchange:
    """Answers the calls of workers, mostly by asking the others. For the loop thread.

    Args:
        count: the number of workers.
        listening: the workers' sockets.
        table: descriptor of their shared memory, see `table`.

    Attributes:
        members: the process in each worker's place; ``None`` before its first one.

    """

    def __init__(self, count: int, listening: Listening, table: int) -> None:
        self.members: list[Member | None] = [None] * count
        self._count = count
        self._listening = listening
        self._table = table
        self._turn = Turn()
        self._past: Any = None

    def member(self, index: int) -> Member:
        """Make the process that takes a worker's place from now on."""
        # The handlers need the member, which needs the handlers.
        handlers: dict[str, Any] = {}
        member = self.members[index] = Member(index, handlers)
        answers: dict[str, Callable[..., Any]] = {
            "join": self._join,
            "ready": self._ready,
            "failed": self._failed_to_start,
            "turn": self._begin_turn,
            "end_turn": self._end_turn,
            "others": self._ask_others,
            "gather": self._gather,
            "leaving": self._leaving,
            "snapshots": self._snapshots,
            "report": self._report,
        }
        handlers.update({name: partial(answer, member) for name, answer in answers.items()})
        return member

    def others(self, member: Member) -> list[Member]:
        """Return the processes other than one."""
        return [each for each in self.members if each is not None and each is not member]

    def serving(self) -> list[Member]:
        """Give the processes that serve."""
        return [each for each in self.members if each is not None and each.ready.is_set()]

    def keep_numbers(self, member: Member) -> None:
        """Keep the counts of an ended process."""
        if member.counted is not None:
            self._past = merged([self._past, member.counted], past=True)

    async def release(self, member: Member, *, stopping: bool) -> None:
        """End the turn of a process that has ended in it; the others read the disk again unless the server stops."""
        if self._turn.end(member) and not stopping:
            # It may have changed the disk before it could report.
            for each in self.others(member):
                if each.ready.is_set():
                    with suppress(PolicyBridgeError):
                        await each.line.call("reread")
                        return

    async def _join(self, member: Member) -> Welcome:
        """Let a worker take part in changes from now on, and send it the others' policies."""
        policies = await self._policies(member)
        return Welcome(
            member.index,
            self._count,
            self._listening.of_worker(member.index),
            logging.getLogger().level,
            member.mark,
            self._table,
            self._listening.given(member.index),
            policies,
        )

    async def _policies(self, member: Member) -> list[StoredPolicy] | None:
        while True:
            joined = [each for each in self.others(member) if each.joined]
            serving = next((each for each in joined if each.ready.is_set()), None)
            if serving is not None:
                with suppress(LineClosedError):
                    await self._turn.take(member)
                    try:
                        policies = await serving.line.call("policies")
                        member.joined = True
                        return cast("list[StoredPolicy]", policies)
                    finally:
                        self._turn.end(member)
            elif member.index == 0 and not joined:
                member.joined = True
                return None
            # The first worker reads the folders, and then reports its policies.
            await asyncio.sleep(0.01)

    async def _ready(self, member: Member, addresses: list[str], policies: int) -> None:
        member.addresses, member.policies = addresses, policies
        if member.index == 0:
            self._listening.found(addresses)
        member.loops = True
        member.ready.set()

    async def _leaving(self, member: Member) -> None:
        member.loops = False

    async def _failed_to_start(self, member: Member, error: Exception) -> None:
        member.error = error

    async def _begin_turn(self, member: Member) -> None:
        await self._turn.take(member)

    async def _end_turn(self, member: Member) -> None:
        self._turn.end(member)

    async def _ask_others(self, member: Member, name: str, *arguments: Any) -> list[Any]:
        """Call all other workers; return the answers of those that did not end in between.

        Raises:
            PolicyBridgeError: the error of one of them.

        """
        joined = [each for each in self.others(member) if each.joined]
        answers = await asyncio.gather(*(each.line.call(name, *arguments) for each in joined), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, LineClosedError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _snapshots(self, member: Member, own: Any) -> list[Any]:
        """Take a worker's numbers, and return those of the others, also of ended ones."""
        member.counted = own
        answers = await self._soon(member, "snapshot")
        for each, answer in answers.items():
            # No counter may fall, so use the last numbers of a silent worker.
            each.counted = answer or (each.counted and replace(each.counted, answering=0))
        snapshots = [each.counted for each in answers if each.counted is not None and each.ready.is_set()]
        return snapshots if self._past is None else [*snapshots, self._past]

    async def _gather(self, member: Member, name: str) -> list[Any]:
        """Call all other workers; return the answers that arrive in time."""
        answers = await self._soon(member, name)
        return [answer for answer in answers.values() if answer is not None]

    async def _soon(self, member: Member, name: str) -> dict[Member, Any]:
        """Call all other workers that serve; ``None`` is the answer of a worker that has ended, or hangs."""
        serving = [each for each in self.others(member) if each.ready.is_set()]
        answers = await asyncio.gather(*(_soon(each, name) for each in serving))
        return dict(zip(serving, answers, strict=True))

    async def _report(self, member: Member, session_id: str, outcome: Any, reporter: str) -> bool:
        """Report an outcome to its session's worker; return whether there is one."""
        for each in self.others(member):
            if each.ready.is_set() and session_id.endswith(each.mark):
                with suppress(LineClosedError):
                    await each.line.call("report", session_id, outcome, reporter)
                    return True
        return False


async def _soon(member: Member, name: str) -> Any:
    """Call a worker; ``None``: see `Exchange._soon`."""
    if member.silent > _SOON:
        return None
    with suppress(LineClosedError, TimeoutError):
        return await asyncio.wait_for(member.line.call(name), _SOON)
    return None
