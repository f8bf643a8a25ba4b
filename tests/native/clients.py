"""The conformance programs of the C++ library and the C ABI, as connections for the Python conformance suites."""

import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from policybridge_core.closing import Closing
from policybridge_core.errors import PreconditionError, Status, error_from_status
from policybridge_serdes import (
    ElementType,
    Outcome,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    pack,
    tensor,
)
from tests.native.conftest import ASAN_OPTIONS

SANITIZED = {
    "ASAN_OPTIONS": f"abort_on_error=0:exitcode=99:{ASAN_OPTIONS}",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


class Program:
    """A running conformance program: one line in, one line out (clients/cpp/tests/client.cpp)."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._process = subprocess.Popen(
            [path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | SANITIZED,
        )

    def ask(self, command: str, *words: object) -> str:
        """Give the words after ``ok``, or ``null``.

        Raises:
            PolicyBridgeError: what the program met.

        """
        line = " ".join([command, *map(str, words)])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.stdin.closed:
            raise PreconditionError("the connection is closed")
        with self._lock:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            answer = self._process.stdout.readline().decode().rstrip("\n")
        kind, _, rest = answer.partition(" ")
        if kind == "error":
            name, _, message = rest.partition(" ")
            raise error_from_status(_statuses[name], decode_text(message).decode())
        assert answer, f"the program ended with {self._process.wait(60)} at {line[:200]!r}"
        assert kind in ("ok", "null"), f"{line[:200]!r} was answered by {answer!r}"
        return kind if kind == "null" else rest

    def end(self) -> None:
        """Let the program exit, and check its status, which is not 0 where a sanitizer found something."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.stdin.closed:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            assert self._process.wait(60) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


_statuses = {status.name: status.value for status in Status}


def encode_text(text: str | bytes) -> str:
    return ":" + quote(text, safe="")


def decode_text(word: str) -> bytes:
    return unquote_to_bytes(word[1:])


def encode_shape(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape)) or "-"


def encode_elements(array: npt.NDArray[Any]) -> list[str]:
    if array.dtype == object:
        return [encode_text(element) for element in array.flat]
    if array.dtype.kind == "b":
        return [str(int(element)) for element in array.flat]
    # As Python numbers, which are written so that they are read back as the same.
    return [repr(element.item()) for element in array.reshape(-1)]


def decode_elements(spec: TensorSpec, words: list[str]) -> npt.NDArray[Any]:
    if spec.type.is_text:
        array = np.empty(len(words), object)
        texts = [decode_text(word) for word in words]
        array[:] = [text.decode() for text in texts] if spec.type is ElementType.STRING else texts
        return array
    convert = float if spec.type.dtype.kind == "f" else int
    return np.array([convert(word) for word in words], spec.type.dtype)


def decode_tensor(spec: TensorSpec, text: str) -> npt.NDArray[Any]:
    """Read ``SHAPE ELEMENT …``."""
    shape, *words = text.split(" ")
    sizes = [] if shape == "-" else [int(size) for size in shape.split(",")]
    return decode_elements(spec, words).reshape(sizes)


_MOST_RUNNERS = 64
"""As many as the program has places for."""


class NativeConnection(Closing):
    """A `Connection` in a program of its own; ``timeout`` as `connect` takes it."""

    def __init__(self, program: Path, address: str, timeout: float = 10.0) -> None:
        self.program = Program(program)
        self._numbers = itertools.cycle(range(_MOST_RUNNERS))
        self._sessions: WeakValueDictionary[int, NativeSession] = WeakValueDictionary()
        self._lock = threading.RLock()
        try:
            self.program.ask("connect", address, repr(float(timeout)))
        except BaseException:
            self.program.end()
            raise

    def prepare(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> None:
        """Set the options of the next session."""
        ask = self.program.ask
        ask("policy", encode_text(_written(policy)))
        for spec in signature.features.specs:
            ask("feature", *_spec_words(spec))
        ask("advice", *_spec_words(signature.advice))
        ask("context", encode_text(options.context))
        for name, value in options.options.items():
            ask("option", encode_text(name), encode_text(value))
        for name, value in options.labels.items():
            ask("label", encode_text(name), encode_text(value))
        if options.exploration is not None:
            explored = options.exploration
            ask("explore", explored.seed, explored.temperature, explored.epsilon)

    def open(
        self, policy: PolicyReference, signature: Signature, options: SessionOptions, *settings: str
    ) -> "NativeSession":
        """Open a session; ``settings`` are further commands, such as ``reopen``."""
        with self._lock:
            # A number whose session nobody holds any more: the program replaces its runner.
            number = next(number for number in self._numbers if number not in self._sessions)
            self.program.ask("use", number)
            self.program.ask("release")
            self.prepare(policy, signature, options)
            for setting in settings:
                self.program.ask(setting)
            self.program.ask("open")
            session = self._sessions[number] = NativeSession(self, number, signature)
        return session

    def ask(self, number: int, *commands: tuple[object, ...]) -> str:
        """Send commands for one runner, and give the answer to the last."""
        with self._lock:
            self.program.ask("use", number)
            for command in commands:
                answer = self.program.ask(str(command[0]), *command[1:])
            return answer

    def check(self) -> None:
        self.program.ask("check")

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        self.program.ask("report_other", encode_text(session_id), *_outcome_words(outcome))

    def close(self) -> None:
        self.program.end()


class NativeSession(Closing):
    """A `ClientSession`, which is a runner of the program."""

    def __init__(self, connection: NativeConnection, number: int, signature: Signature) -> None:
        self._connection = connection
        self._number = number
        self._signature = signature

    def ask(self, *words: object) -> str:
        """Send one command about this runner."""
        return self._connection.ask(self._number, words)

    @property
    def id(self) -> str:
        return decode_text(self.ask("session").split(" ")[0]).decode()

    @property
    def policy(self) -> PolicyVersion:
        _, name, version, digest = self.ask("session").split(" ")
        return PolicyVersion(decode_text(name).decode(), int(version), decode_text(digest).decode())

    @property
    def log_probability(self) -> float | None:
        told = self.ask("chance")
        return None if told == "null" else float(told)

    @property
    def counts(self) -> dict[str, int]:
        """The runner's counts."""
        names = ("decisions", "fallbacks", "retries", "reopened")
        return dict(zip(names, map(int, self.ask("counts").split(" ")), strict=True))

    def set(self, index: int, value: npt.ArrayLike) -> None:
        """Set a feature to a value of its type."""
        array = np.asarray(value)
        self.ask("set", index, encode_shape(array.shape), *encode_elements(array))

    def evaluate(self, observation: Values) -> Values:
        settings: list[tuple[object, ...]] = []
        for index, spec in enumerate(self._signature.features.specs):
            array = tensor(spec, observation)
            settings.append(("set", index, encode_shape(array.shape), *encode_elements(array)))
        told = self._connection.ask(self._number, *settings, ("evaluate",))
        advice = self._signature.advice
        return pack(self._signature.advice_layout, {advice.name: decode_tensor(advice, told)})

    def decide(self) -> Any:
        """Evaluate with the features as they are; give the advice, or its element where it has one."""
        array = decode_tensor(self._signature.advice, self.ask("evaluate"))
        return array.reshape(-1)[0].item() if array.size == 1 and array.dtype != object else array

    @property
    def decides(self) -> list[str]:
        """The kinds of decisions that the policy declares."""
        return [decode_text(word).decode() for word in self.ask("decides").split()]

    def bind(self, policy: PolicyReference, signature: Signature) -> None:
        """Set the signature of the following observations."""
        specs = [("feature", *_spec_words(spec)) for spec in signature.features.specs]
        advice = ("advice", *_spec_words(signature.advice))
        self._connection.ask(self._number, ("policy", encode_text(_written(policy))), *specs, advice, ("bind",))
        self._signature = signature

    def context(self, name: str) -> None:
        self.ask("context", encode_text(name))

    def report(self, outcome: Outcome) -> None:
        self.ask("report", *_outcome_words(outcome))

    def close(self) -> None:
        self.ask("close")


def _written(policy: PolicyReference) -> str:
    which = policy.version if policy.version is not None else policy.alias
    return policy.name if which is None else f"{policy.name}@{which}"


def _spec_words(spec: TensorSpec) -> tuple[str, str, str]:
    return encode_text(spec.name), spec.type.value, encode_shape(spec.shape)


def _outcome_words(outcome: Outcome) -> list[str]:
    values: Mapping[str, float] = {
        **outcome.values,
        **{f"{context}@{name}": value for context, each in outcome.contexts.items() for name, value in each.items()},
    }
    pairs = [word for name, value in values.items() for word in (encode_text(name), repr(float(value)))]
    return [encode_text(outcome.status), *pairs]


Connect = Callable[..., NativeConnection]
"""`connect`, over a program: ``connect(address, timeout=…)``."""


@contextmanager
def programs(path: Path) -> Iterator[Connect]:
    """Make connections that are closed with the context."""
    with ExitStack() as stack:

        def connect(address: str, *, timeout: float = 10.0) -> NativeConnection:
            connection = NativeConnection(path, address, timeout)
            stack.callback(connection.close)
            return connection

        yield connect
