"""The server's side of a policy's process: a model whose evaluations the process makes."""

import time
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import Layout, TensorSpec, Values
from policybridge_server.backends.contract import Batch, ModelSignature, SessionView
from policybridge_server.backends.process.arrays import check_advice, decode, describe_fields, encode
from policybridge_server.backends.process.child_process import ChildProcess
from policybridge_server.backends.process.messages import (
    Asked,
    End,
    Evaluate,
    Load,
    Loaded,
    NewLayout,
    NewSession,
    Reply,
)
from policybridge_server.repository import StoredVersion

_MOST_DELAY: Final = 60.0
"""Seconds."""

_Result = TypeVar("_Result")


class ProcessModel:
    """A version in a process of its own. For one thread at a time.

    If the process ends, its sessions get an error, and it is started again for the next session: at once after its
    first end, and 1, 2, 4 … 60 seconds later if it ends again before it has answered.

    Attributes:
        trouble: why there is no process at present; empty if there is one.

    Args:
        stored: the version.
        folder: holds its files now; later they are in their place.
        allowed: seconds for one evaluation.
        load_allowed: seconds for loading it.

    Raises:
        PreconditionError: it cannot be loaded.

    """

    inline: bool | None = False

    def __init__(self, stored: StoredVersion, folder: Path, allowed: float, load_allowed: float) -> None:
        self.trouble = ""
        self._stored = stored
        self._allowed = allowed
        self._load_allowed = load_allowed
        self._ends = 0
        self._next_start = 0.0
        self._numbers = 0
        self._process: _Process | None = None
        try:
            self._process = _Process(stored, folder, load_allowed)
        except PolicyFailedError as error:
            raise PreconditionError(str(error)) from error
        loaded = self._process.loaded
        self.batched = loaded.batched
        self.signature = _signature(loaded)
        # Sessions that the present process, or one before it, has met.
        self._met: dict[str, _Met] = {}

    def evaluate(self, batch: Batch) -> Values:
        """Let the process evaluate ``batch``; start it again if it has ended.

        Raises:
            PolicyFailedError: there is no advice, or no process.

        """
        process = self._running()
        contexts: dict[int, str] = {}
        new: list[NewSession] = []
        numbers = [self._number(process, session, new, contexts) for session in batch.sessions]
        asked = Evaluate(len(batch.values), numbers, new, contexts, process.layout(batch))
        body = self._ask(process, Asked(evaluate=asked), encode(batch.values), self._allowed)
        values = check_advice(decode(body, batch.advice.dtype, len(batch.values)), batch.advice)
        self._ends, self.trouble = 0, ""
        return values

    def _running(self) -> "_Process":
        if self._process is not None:
            return self._process
        wait = self._next_start - time.monotonic()
        if wait > 0:
            raise PolicyFailedError(f"{self.trouble}; it is started again in {wait:.1f} s")
        try:
            started = _Process(self._stored, self._stored.folder, self._load_allowed)
        except PolicyFailedError as error:
            self._count_end(str(error))
            raise
        if _signature(started.loaded) != self.signature:
            started.child.kill()
            raise PolicyFailedError(f"{self._stored} has another signature since it was started again")
        self._process = started
        return started

    def _number(
        self, process: "_Process", session: SessionView, new: list[NewSession], contexts: dict[int, str]
    ) -> int:
        """Give the session's number in the process, and record the news of it for the process."""
        met = self._met.get(session.id)
        if met is not None and met.session is session and met.process is not process and process.loaded.stateful:
            raise PolicyFailedError(
                f"the process of {self._stored} ended during this session, and its state of the session is lost"
            )
        if met is None or met.session is not session or met.process is not process:
            self._numbers += 1
            met = self._met[session.id] = _Met(session, process, self._numbers)
            policy = session.policy
            new.append(
                NewSession(
                    met.number,
                    session.id,
                    policy.name,
                    policy.version,
                    policy.digest,
                    dict(session.options),
                    dict(session.labels),
                )
            )
        if met.context != session.context:
            met.context = contexts[met.number] = session.context
        return met.number

    def end(self, session: SessionView) -> None:
        """Tell the process of the end of ``session``, if it knows it.

        Raises:
            PolicyFailedError: the policy's ``end`` failed, or the process has ended.

        """
        met = self._met.pop(session.id, None)
        if met is not None and met.process is self._process:
            self._ask(met.process, Asked(end=End(met.number)), b"", self._allowed)

    def _ask(self, process: "_Process", asked: Asked, body: bytes, allowed: float) -> bytes:
        try:
            reply, answer = process.ask(asked, body, allowed)
        except _EndedError as error:
            self._process = None
            self._count_end(str(error))
            raise PolicyFailedError(str(error)) from None
        if reply.failed is not None:
            raise _error(reply)
        return answer

    def _count_end(self, reason: str) -> None:
        self._process = None
        self._ends += 1
        self.trouble = reason
        delay = 0.0 if self._ends == 1 else min(2.0 ** (self._ends - 2), _MOST_DELAY)
        self._next_start = time.monotonic() + delay

    def close(self) -> None:
        """End the process."""
        self._met.clear()
        if self._process is not None:
            self._process.child.end()
            self._process = None


class _Met:
    """A session as its process knows it."""

    def __init__(self, session: SessionView, process: "_Process", number: int) -> None:
        self.session = session
        self.process = process
        self.number = number
        self.context = ""


class _EndedError(Exception):
    """The process has ended, or was killed because it took too long; the text has the reason."""


class _Process:
    """One process with the version loaded."""

    def __init__(self, stored: StoredVersion, folder: Path, allowed: float) -> None:
        self._name = str(stored)
        self._layout: NewLayout | None = None
        self._known: tuple[object, Layout] | None = None
        self.child = ChildProcess()
        load = Load(str(folder.absolute()), _config(stored), self._name, stored.config.memory_limit)
        try:
            reply, _ = self.ask(Asked(load=load), b"", allowed)
            if reply.failed is not None:
                raise _error(reply)
            if reply.loaded is None:
                raise PolicyFailedError(f"the process of {stored} gave no signature")
        except _EndedError as error:
            raise PolicyFailedError(str(error)) from None
        except BaseException:
            self.child.kill()
            raise
        self.loaded: Loaded = reply.loaded

    def layout(self, batch: Batch) -> NewLayout | None:
        """Give the record types of ``batch``, if the process does not have them from the request before."""
        known = self._known
        if known is not None and known[0] == batch.values.dtype and known[1] is batch.advice:
            return None
        self._known = (batch.values.dtype, batch.advice)
        return NewLayout(describe_fields(batch.values.dtype), [dict(spec.to_json()) for spec in batch.advice.specs])

    def ask(self, asked: Asked, body: bytes, allowed: float) -> tuple[Reply, bytes]:
        """Ask, and give the answer.

        Raises:
            _EndedError: the process has ended; or it took longer than ``allowed`` seconds, and is ended now.

        """
        due = time.monotonic() + allowed
        try:
            self.child.channel.send(asked, body, due)
            return self.child.channel.receive(Reply, due)
        except TimeoutError:
            self.child.kill(0.0)
            raise _EndedError(f"{self._name} gave no answer within {allowed:g} s; its process was killed") from None
        except (EOFError, OSError):
            raise _EndedError(f"the process of {self._name} {self.child.kill()}") from None
        except PolicyFailedError as error:
            self.child.kill(0.0)
            raise _EndedError(f"{error}; the process of {self._name} was killed") from error


def _error(reply: Reply) -> PolicyFailedError:
    failed = reply.failed
    error = PolicyFailedError("" if failed is None else failed.text)
    if failed is not None:
        error.add_note(f"In the policy's process:\n{failed.traceback}")
    return error


def _config(stored: StoredVersion) -> dict[str, object]:
    config: dict[str, object] = msgspec.to_builtins(stored.config)
    return config


def _signature(loaded: Loaded) -> ModelSignature:
    features, advice = loaded.features, loaded.advice
    return ModelSignature(
        None if features is None else Layout.from_json(features),
        None if advice is None else TensorSpec.from_json(advice),
    )
