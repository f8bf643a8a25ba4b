"""Servers with pipes, compilers that ask through them, and policies that answer."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.conftest import command
from tests.repositories import answering, write_python

ECHO = """
    class Policy:
        \"\"\"Answers the feature that the option names, and 100 more for every question before.\"\"\"

        def start(self, session):
            session.state["asked"] = -1

        def evaluate(self, observation, session):
            session.state["asked"] += 1
            return observation["x"] + 100 * session.state["asked"]
"""


def write_policies(repository: Path) -> Path:
    """Write what the tests ask, and give the folder."""
    write_python(repository, "same", answering('observation["x"]'))
    write_python(repository, "counting", ECHO)
    write_python(repository, "version", answering("session.policy.version"))
    write_python(repository, "types", answering('observation["x"].dtype.name + str(list(observation["x"].shape))'))
    declares = 'advice = { name = "out", type = "int64_t", shape = [1] }'
    write_python(repository, "wide", answering('observation["x"]'), declares)
    write_python(repository, "count", answering('observation["count"]'))
    write_python(repository, "boom", answering('observation["x"] if observation["x"][0] < 5 else 1 / 0'))
    write_python(repository, "slow", "import time\n" + answering('time.sleep(observation["x"][0]) or observation["x"]'))
    return repository


@dataclass
class PipeServer:
    """A ``policybridge serve`` with pipes that has printed its ready line."""

    process: subprocess.Popen[str]
    addresses: list[str]
    folder: Path
    program: Path

    def compiler(self, base: str, form: str = "bytes") -> "Compiler":
        """Start a compiler on a base in the server's folder."""
        return Compiler(self.program, self.folder / base, form)

    def raw(self, base: str) -> "RawCompiler":
        return RawCompiler(self.folder / base)

    def log(self) -> str:
        return (self.folder / "serve.log").read_text()

    def wait_for_log(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.log().count(text) >= times)


@dataclass
class Kit:
    """The compiler's program and the policies of the tests."""

    program: Path
    policies: Path

    @contextmanager
    def serving(self, folder: Path, *arguments: object, pipes: Sequence[str] = ()) -> Iterator[PipeServer]:
        """Serve ``pipes``, whose bases lie in ``folder``; the server's standard error goes there too."""
        options = [option for pipe in pipes for option in ("--pipe", folder / pipe)]
        words = command("serve", "--verbose", "--repository", self.policies, "--allow-python", *options, *arguments)
        with (folder / "serve.log").open("w") as stderr:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert process.stdout is not None
        try:
            word, *addresses = process.stdout.readline().split() or [""]
            running = PipeServer(process, addresses, folder, self.program)
            assert word == "ready", running.log()
            yield running
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.stdout.close()

    def refused(self, pipe: str) -> str:
        """Serve ``pipe``, which cannot be, and give what the server says."""
        serve = command("serve", "--repository", self.policies, "--allow-python", "--pipe", pipe)
        done = subprocess.run(serve, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        return done.stderr


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what another process does, of which no event tells."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Compiler:
    """A running ``pipes_compiler``; see its source."""

    def __init__(self, program: Path, base: Path | str, form: str = "bytes") -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, str(base), form], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self, seconds: float = 60) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], seconds)[0], "no answer came"
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.send(line)
        return self.answer()

    def end(self) -> int:
        """End the compile, and give its exit status."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class RawCompiler:
    """The compiler's ends of the FIFOs in this process, for bytes that no compiler sends."""

    def __init__(self, base: Path | str) -> None:
        self._answers = os.open(f"{base}.in", os.O_RDONLY)
        self._questions = os.open(f"{base}.out", os.O_WRONLY)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._questions, view) :]

    def receive(self, size: int, seconds: float = 60) -> bytes:
        data = b""
        while len(data) < size:
            assert select.select([self._answers], [], [], seconds)[0], "no answer came"
            piece = os.read(self._answers, size - len(data))
            assert piece, "the server closed the FIFO"
            data += piece
        return data

    def send_until_full(self, most: int) -> int:
        """Send messages without a byte in them until the server takes no more; give how many bytes it took."""
        os.set_blocking(self._questions, False)
        taken = 0
        while taken < most and select.select([], [self._questions], [], 1)[1]:
            with contextlib.suppress(BlockingIOError):
                taken += os.write(self._questions, bytes(4096))
        return taken

    def exchange(self, message: bytes) -> bytes:
        self.send(len(message).to_bytes(8, "little") + message)
        return self.receive(int.from_bytes(self.receive(8), "little"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._answers)
        os.close(self._questions)


def resident_bytes(pid: int) -> int:
    """Give the memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
