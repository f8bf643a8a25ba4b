"""A compiler in training mode as a Gymnasium environment: a compilation is an episode, a call is a step."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import gymnasium
from google.protobuf.message import Message

from policybridge_client.environment.compiler import Compiler, RunningCompiler
from policybridge_client.environment.methods import Method, Reply
from policybridge_client.environment.spaces import ReplySpace, field_setter
from policybridge_client.grpc_channel import ask, close_channel
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    PolicyBridgeError,
    PreconditionError,
    UnavailableError,
    error_from_status,
)

_POLL: Final = 0.1
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
    # Ports are reused. A new channel must not share the connection, or the back-off, of an earlier compiler's channel.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True)
class Transition:
    """The result of a step, from which its reward is computed.

    Attributes:
        step: the number of the step, counted from 1.
        action: the action that was sent.
        before: the observation before the step.
        observation: the observation after the step.
        reply: the compiler's reply.
        terminated: whether the compilation has ended, so that its results can be read.
        folder: the folder of the episode, ``{folder}`` in the command; the next reset removes it.

    """

    step: int
    action: Any
    before: Any
    observation: Any
    reply: Message
    terminated: bool
    folder: Path


class CompilerEnvironment(gymnasium.Env[Any, Any]):
    """Starts a compiler at each reset and calls its method at each step.

    If the compiler ends early, replies too late or replies with an error, the episode is truncated: the observation is
    the previous one, the reward is 0, and ``info["error"]`` says why. The next reset starts a new compiler.
    ``info["reply"]`` is the latest `Reply`; after the end, ``info["status"]`` is the compiler's exit status. Every
    ``info`` can be pickled, as environments in processes of their own need it.

    Args:
        compiler: how the compiler is started and ended.
        method: the method that is called.
        action_space: the space of the actions.
        reward: computes a step's reward.
        terminated: tells whether a step was the last one. It is called before ``reward``; if it is true, the
            compilation is finished first.
        action: the request's field for the action (by default the first field of numbers), or a function that writes
            the action into the request.
        sizes: lengths of the reply's repeated fields of constant length; the other repeated fields are Sequences.
        first: the fields of the request for the first observation.
        last: the fields of a last request before the end; by default no such request is sent.
        observe: makes the observation from a reply; needs ``observation_space``. By default the observation holds all
            numbers of the reply, by name.

    Raises:
        InvalidError: a field does not exist, or only one of observe and observation_space is given.

    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration
    """Gymnasium's: there is nothing to draw."""

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        compiler: Compiler,
        method: Method,
        *,
        action_space: gymnasium.Space[Any],
        reward: Callable[[Transition], float],
        terminated: Callable[[Transition], bool],
        action: str | Callable[[Message, Any], None] | None = None,
        sizes: Mapping[str, int] | None = None,
        first: Mapping[str, Any] | None = None,
        last: Mapping[str, Any] | None = None,
        observe: Callable[[Message], Any] | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        if (observe is None) != (observation_space is None):
            raise InvalidError("observe and observation_space come together")
        self._compiler = compiler
        self._method = method
        self._write = action if callable(action) else field_setter(method.request(), action)
        self._reward = reward
        self._terminated = terminated
        self._first = _request(method, first or {})
        self._last = None if last is None else _request(method, last)
        self.action_space = action_space
        if observe is not None and observation_space is not None:
            self._observe, self.observation_space = observe, observation_space
        else:
            replies = ReplySpace(method.reply(), sizes or {})
            self._observe, self.observation_space = replies.read, replies.space
        self._running: RunningCompiler | None = None
        self._channel: grpc.Channel | None = None
        self._over = True
        self._step = 0
        self._reply: Message = method.reply()
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start the compiler; return its first observation. ``options`` replace the placeholders of the command.

        Raises:
            UnavailableError: the compiler cannot be started, or ended before its first reply.
            DeadlineError: it did not reply in time.
            PolicyBridgeError: it replied with an error.

        """
        super().reset(seed=seed)
        self._end()
        self._running = RunningCompiler(self._compiler, options or {})
        self._step = 0
        try:
            self._call = self._connect(self._running)
            self._reply = self._ask(self._first)
            self._observation = self._observe(self._reply)
        except BaseException:
            self._end()
            raise
        self._over = False
        return self._observation, {"reply": self._told}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send the action; return the result of the step.

        Raises:
            PreconditionError: the episode is over, or was never started.
            InvalidError: the action space is `Discrete`, and has no such action.

        """
        if self._over or self._running is None:
            raise PreconditionError("the episode is over; reset() begins the next one")
        # Spaces of numbers are left to the user's own conversion: Gymnasium's test refuses float64 for float32.
        if isinstance(self.action_space, gymnasium.spaces.Discrete) and not self.action_space.contains(action):
            raise InvalidError(f"{action!r} is no action of {self.action_space}")
        request = self._method.request()
        self._write(request, action)
        before = self._observation
        try:
            self._reply = self._ask(request)
            self._observation = self._observe(self._reply)
            self._step += 1
            return self._stepped(self._running, action, before)
        except PolicyBridgeError as error:
            return self._truncated(self._running, error)

    def close(self) -> None:
        """Kill the compiler, if one runs. A second call does nothing."""
        self._end()

    def _stepped(
        self, running: RunningCompiler, action: Any, before: Any
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        transition = Transition(self._step, action, before, self._observation, self._reply, False, running.folder)
        info: dict[str, Any] = {"reply": self._told}
        terminated = bool(self._terminated(transition))
        if terminated:
            if self._last is not None:
                self._ask(self._last)
            info["status"] = running.finish()
            self._over = True
            transition = Transition(self._step, action, before, self._observation, self._reply, True, running.folder)
        return self._observation, float(self._reward(transition)), terminated, False, info

    def _truncated(
        self, running: RunningCompiler, error: PolicyBridgeError
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        info = {"reply": self._told, "error": str(error), "status": running.status}
        self._end()
        return self._observation, 0.0, False, True, info

    @property
    def _told(self) -> Reply:
        return Reply(self._method, self._reply)

    def _connect(self, running: RunningCompiler) -> Callable[..., Message]:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{running.port()}", options=_OPTIONS)
        ready = grpc.channel_ready_future(self._channel)
        try:
            while True:
                with contextlib.suppress(grpc.FutureTimeoutError):
                    ready.result(timeout=_POLL)
                    break
                if running.status is not None:
                    raise running.died()
                if running.start_left() <= 0:
                    raise DeadlineError(f"the compiler did not listen within {self._compiler.start_timeout:g} s")
        finally:
            ready.cancel()
        return self._channel.unary_unary(
            self._method.path,
            request_serializer=self._method.request.SerializeToString,
            response_deserializer=self._method.reply.FromString,
        )

    def _ask(self, request: Message) -> Message:
        try:
            reply: Message = ask(self._call, request, "127.0.0.1", self._compiler.step_timeout)
            return reply
        except DeadlineError as error:
            raise DeadlineError(
                f"{self._method.path} gave no answer within {self._compiler.step_timeout:g} s"
            ) from error
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def _failure(self, error: grpc.RpcError) -> PolicyBridgeError:
        status, details = error.code(), error.details()
        if status is grpc.StatusCode.UNAVAILABLE and self._running is not None:
            died = self._running.died()
            return died if self._running.status is not None else UnavailableError(f"{self._method.path}: {details}")
        return error_from_status(status.value[0], f"{self._method.path}: {details}")

    def _end(self) -> None:
        self._over = True
        # First the compiler: a channel cannot be closed while a stopped one does not take its bytes.
        if self._running is not None:
            self._running.close()
            self._running = None
        if self._channel is not None:
            close_channel(self._channel)
            self._channel = None


def _request(method: Method, fields: Mapping[str, Any]) -> Message:
    try:
        return method.request(**fields)
    except (ValueError, TypeError) as error:
        raise InvalidError(f"{method.path}: {fields!r} is no request: {error}") from error
