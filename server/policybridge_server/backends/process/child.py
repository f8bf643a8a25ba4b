"""The policy's process: it loads one version and answers the server's requests, until the server closes or ends.

The server starts it with two descriptors: the connection, and the end of a pipe without a writer. When the
server ends, in any way, the kernel closes the pipe's other end and kills this process and its children,
also while a policy hangs or holds the interpreter lock.
"""

import fcntl
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from policybridge_core.authors import describe, text_of, traceback_of
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Layout, PolicyVersion, Values
from policybridge_server.backends.contract import Batch, Model, SessionView, StatefulModel, load_backend
from policybridge_server.backends.process.arrays import decode, encode, make_dtype
from policybridge_server.backends.process.messages import (
    Asked,
    Channel,
    Evaluate,
    Failed,
    Load,
    Loaded,
    NewSession,
    Reply,
)
from policybridge_server.output import name_output
from policybridge_server.repository import PolicyConfig

_F_SETSIG: Final = 10
"""Linux's number of fcntl's F_SETSIG, which Python does not name."""


def main(connection: int, lifeline: int) -> None:
    """Serve the requests on the descriptor ``connection``; end when the pipe ``lifeline`` closes."""
    end_with(lifeline)
    be_killed_first()
    channel = Channel(socket.socket(fileno=connection))
    server, own = _Server(), os.getpid()
    while True:
        try:
            asked, body = channel.receive(Asked)
        except (EOFError, OSError):
            return
        try:
            reply, answer = server.answer(asked, body)
        except BaseException as error:
            reply, answer = Reply(failed=_failed(error)), b""
        if os.getpid() != own:
            # A policy has forked, and this is the copy: its reply would be taken for that to another request.
            os._exit(0)
        channel.send(reply, answer)


def end_with(lifeline: int) -> None:
    """Let the kernel kill this process and its children when the other end of the pipe is closed."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        # It was closed before.
        os._exit(0)


def be_killed_first() -> None:
    """If the machine's memory is full, the kernel must kill this process and not the server. Write no core dump."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _failed(error: BaseException) -> Failed:
    text = text_of(error) if isinstance(error, PolicyBridgeError) else f"the policy failed: {describe(error)}"
    return Failed(text, traceback_of(error))


class _Server:
    """Answers requests about one version."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._sessions: dict[int, SessionView] = {}
        self._dtype: Any = None
        self._advice: Any = None

    def answer(self, asked: Asked, body: bytes) -> tuple[Reply, bytes]:
        if asked.load is not None:
            return Reply(loaded=self._load(asked.load)), b""
        if asked.evaluate is not None:
            return Reply(), encode(self._evaluate(asked.evaluate, body))
        session = self._sessions.pop(asked.end.number, None) if asked.end is not None else None
        if session is not None and isinstance(self._model, StatefulModel):
            self._model.end(session)
        return Reply(), b""

    def _load(self, load: Load) -> Loaded:
        name_output(load.name)
        if load.memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (load.memory, load.memory))
        config = msgspec.convert(load.config, PolicyConfig)
        self._model = model = load_backend(config.backend).load(Path(load.folder), config)
        features, advice = model.signature.features, model.signature.advice
        return Loaded(
            None if features is None else [dict(spec.to_json()) for spec in features.specs],
            None if advice is None else dict(advice.to_json()),
            model.batched,
            isinstance(model, StatefulModel),
        )

    def _evaluate(self, asked: Evaluate, body: bytes) -> Values:
        if asked.layout is not None:
            self._dtype = make_dtype(asked.layout.fields)
            self._advice = Layout.from_json(asked.layout.advice)
        for new in asked.new:
            self._sessions[new.number] = _view(new)
        for number, context in asked.contexts.items():
            self._sessions[number].context = context
        sessions = [self._sessions[number] for number in asked.sessions]
        if self._model is None:
            raise RuntimeError("nothing is loaded")
        return self._model.evaluate(Batch(decode(body, self._dtype, asked.count), sessions, self._advice))


def _view(new: NewSession) -> SessionView:
    policy = PolicyVersion(new.name, new.version, new.digest)
    return SessionView(new.id, policy, options=new.options, labels=new.labels)


def keep_output_apart() -> None:
    """Let nothing that a policy or a library prints reach the server's standard output; a terminal's Ctrl-C is its."""
    with suppress(OSError):
        os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def start(arguments: list[str]) -> None:
    """Run as a program: the two descriptors are its arguments."""
    keep_output_apart()
    main(int(arguments[0]), int(arguments[1]))
    sys.stderr.flush()
    # Skip the destructors of frameworks: some of them abort.
    os._exit(0)
