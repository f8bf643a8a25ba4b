"""One connection of the C++ library, behind the program that clients/cpp/grpc/tests/channel_driver.h describes."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from policybridge_serdes import Signature, TensorSpec, Values, load_serdes, pack, unpack


class ChannelError(Exception):
    """An error of the library: its code's name, then its message."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.code, _, self.message = told.partition(" ")


class Advice(NamedTuple):
    """An advice, and the log-probability with which it was chosen where the session explores."""

    value: npt.NDArray[Any]
    log_probability: float | None


class Session:
    """One of the program's sessions; ``told`` holds the words with its id and policy version."""

    def __init__(self, channel: "Channel", number: int, signature: Signature, told: list[str]) -> None:
        self.told = told
        self._channel = channel
        self._number = number
        self._features = signature.features
        self._advice = signature.advice_layout
        self._encode = load_serdes("bitstream").codec(signature.features).encode
        self._decode = load_serdes("bitstream").codec(signature.advice_layout).decode
        self._step = 0

    def ask(self, **features: npt.ArrayLike) -> Advice:
        """Evaluate the next observation."""
        self._step += 1
        return self.ask_step(self._step, pack(self._features, features))

    def ask_again(self, **features: npt.ArrayLike) -> Advice:
        """Evaluate once more under the last step."""
        return self.ask_step(self._step, pack(self._features, features))

    def ask_step(self, step: int, observation: Values) -> Advice:
        """Evaluate under the step ``step``."""
        return self.ask_bytes(step, self._encode(observation))

    def ask_bytes(self, step: int, observation: bytes) -> Advice:
        """Evaluate an observation of any bytes."""
        told = self._channel.say(f"ask {self._number} {step} {observation.hex() or '-'}")
        values = self._decode(bytes.fromhex(told[0].replace("-", "")))
        value = unpack(self._advice, values)[self._advice.specs[0].name]
        return Advice(value, float(told[1]) if len(told) > 1 else None)

    def context(self, name: str) -> None:
        """Set the context of the following observations."""
        self._channel.say(f"context {self._number} {name}")

    def report(self, status: str, **values: float) -> None:
        """Report the outcome."""
        self._channel.say(f"report {self._number} {_outcome(status, values)}")

    @property
    def is_open(self) -> bool:
        """Whether the session is open."""
        return self._channel.say(f"is-open {self._number}") == ["1"]

    def close(self) -> None:
        """End it."""
        self._channel.say(f"close {self._number}")


class Channel:
    """The running program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._opened = 0

    def say(self, line: str) -> list[str]:
        """Send one line; give the words of its answer.

        Raises:
            ChannelError: the answer is an error.

        """
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> list[str]:
        """Give the words of the next answer."""
        assert self._process.stdout is not None
        word, _, told = self._process.stdout.readline().rstrip("\n").partition(" ")
        if word == "error":
            raise ChannelError(told)
        assert word == "ok", f"the program ended with {self._process.wait(60)}"
        return told.split()

    def prepare(self, signature: Signature, *settings: str) -> None:
        """Set the options of the next sessions; ``settings`` are lines such as ``label test yes``."""
        features = [f"feature {_spec(spec)}" for spec in signature.features.specs]
        for line in ("forget", *features, f"advice {_spec(signature.advice)}", *settings):
            self.say(line)

    def open(self, policy: str, signature: Signature, *settings: str) -> Session:
        """Open a session."""
        self.prepare(signature, *settings)
        told = self.say(f"open {policy}")
        self._opened += 1
        return Session(self, self._opened - 1, signature, told)

    def many(
        self, threads: int, decisions: int, policy: str, signature: Signature, **features: npt.ArrayLike
    ) -> list[str]:
        """Evaluate in several threads at once; give the distinct advices, in hexadecimal digits."""
        self.prepare(signature)
        observation = load_serdes("bitstream").codec(signature.features).encode(pack(signature.features, features))
        return self.say(f"many {threads} {decisions} {policy} {observation.hex()}")

    def peak_memory(self) -> int:
        """Give the program's peak memory, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def report_past(self, session_id: str, status: str, **values: float) -> None:
        """Report the outcome of a past session."""
        self.say(f"report-past {session_id} {_outcome(status, values)}")


@contextmanager
def running_channel(
    program: Path, address: str, *, timeout: float = 10.0, environment: Mapping[str, str] | None = None
) -> Iterator[Channel]:
    """Run the program, and check its exit status, which is not 0 where a sanitizer found something."""
    command = [str(program), address, str(int(timeout * 1000))]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environment) if environment else None,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        channel = Channel(process)
        channel.hear()
        yield channel
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _spec(spec: TensorSpec) -> str:
    return " ".join([spec.name, spec.type.value, *map(str, spec.shape)])


def _outcome(status: str, values: Mapping[str, float]) -> str:
    return " ".join([status, *(f"{name} {value}" for name, value in values.items())])
