"""One compilation under limits, and many at once."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Ended, Running, Status, compile_by
from policybridge_train.processes.threads import for_each
from tests.server.publishing.policies import wait_for
from tests.training.ended import wait_until_gone


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_compiler_that_fails_gives_its_words() -> None:
    done = compile_by(_python("import sys; sys.exit('this is why')"), Limits())
    assert (done.status, done.message) == (Status.FAILED, "this is why")


def test_a_compiler_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "child"
    child = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', {str(marker)!r}])"
    )
    done = compile_by(_python(child), Limits(seconds=1))
    assert done.status is Status.TIMEOUT
    assert "1 seconds" in done.message
    wait_until_gone(marker)


def test_a_compiler_that_crashes_gives_the_signal_and_leaves_no_core(tmp_path: Path) -> None:
    done = compile_by(_python("import os; print('oh', flush=True); os.abort()"), Limits(), cwd=tmp_path)
    assert (done.status, done.message) == (Status.CRASHED, "signal 6: oh")
    assert not list(tmp_path.iterdir())


def test_a_compiler_gets_no_more_memory_than_it_may_have() -> None:
    # The limit is set when the process has started; on a busy machine an allocation could come first.
    limited = "while resource.getrlimit(resource.RLIMIT_AS)[0] < 0: pass"
    done = compile_by(_python(f"import resource\n{limited}\nbytearray(1 << 30)"), Limits(memory=512 << 20))
    assert done.status is Status.FAILED
    assert "MemoryError" in done.message


def test_a_compiler_whose_trainer_was_killed_goes_on_until_its_limit_of_processor_time(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    child = f"echo $$ > {tmp_path / 'number'}; read line < {go}; echo $line > {done}"
    program = (
        "from policybridge_train.compiling.limits import Limits\n"
        "from policybridge_train.processes.process import compile_by\n"
        f"compile_by(['sh', '-c', {child!r}], Limits(seconds=600))"
    )
    with subprocess.Popen(_python(program)) as trainer:
        try:
            wait_for(lambda: (tmp_path / "number").exists() and bool((tmp_path / "number").read_text().strip()))
            compiler = int((tmp_path / "number").read_text())
            wait_for(lambda: resource.prlimit(compiler, resource.RLIMIT_CPU) == (610, 610))
        finally:
            trainer.kill()
    # Opened for both, the pipe does not wait for a compiler that is gone.
    with os.fdopen(os.open(go, os.O_RDWR), "w") as pipe:
        pipe.write("on\n")
        pipe.flush()
        wait_for(lambda: done.exists() and done.read_text() == "on\n")


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "1e9"])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    with pytest.raises(InvalidError, match=r"seconds=.*more than 0 and at most 1e\+06"):
        Limits.read(seconds)


@pytest.mark.parametrize("memory", ["-1", "0", str(1 << 50)])
def test_a_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(InvalidError, match=r"memory=.*more than 0 and at most"):
        Limits.read("1", memory)


def test_limits_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InvalidError, match="seconds=soon or memory=1 is no number"):
        Limits.read("soon", "1")


def test_processor_time_is_counted() -> None:
    assert compile_by(_python("sum(range(2_000_000))"), Limits()).seconds > 0


def test_limits_that_are_lower_already_stay() -> None:
    program = (
        "import resource\n"
        "from policybridge_train.compiling.limits import Limits\n"
        "from policybridge_train.processes.process import compile_by\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "print(compile_by(['/bin/true'], Limits(memory=8 << 30)).status.value)"
    )
    assert subprocess.run(_python(program), capture_output=True, text=True, check=True).stdout == "ok\n"


def test_results_come_in_the_order_of_the_items() -> None:
    running = Running()
    first = threading.Event()

    def job(number: int) -> int:
        if number:
            first.set()
        else:
            assert first.wait(60)
        return number * number

    assert list(for_each(job, range(20), 3, running)) == [number * number for number in range(20)]


def _sleeping(running: Running, started: list[int]) -> Ended:
    started.append(1)
    return compile_by(_python("import time; time.sleep(600)"), Limits(), running=running)


def test_all_compilers_end_when_a_job_raises() -> None:
    running = Running()
    started: list[int] = []

    def job(number: int) -> Ended:
        if number == 0:
            raise ValueError("the first")
        return _sleeping(running, started)

    with pytest.raises(ValueError, match="the first"):
        list(for_each(job, range(50), 4, running))
    assert len(started) <= 8


def test_all_compilers_end_when_the_caller_stops() -> None:
    running = Running()
    started: list[int] = []

    def results() -> Iterator[Ended | None]:
        return for_each(lambda number: _sleeping(running, started) if number else None, range(50), 4, running)

    given = results()
    assert next(given) is None
    given.close()  # type: ignore[attr-defined]
    assert len(started) <= 8


def test_nothing_starts_after_all_were_ended() -> None:
    running = Running()
    running.end()
    # Other tests of this process may have started helpers that stay, such as those of multiprocessing.
    before = _children()
    with pytest.raises(PreconditionError, match="stopped"):
        compile_by(_python("import time; time.sleep(600)"), Limits(), running=running)
    assert set(_children()) <= set(before)


def _children() -> list[int]:
    own = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return [
        int(word) for word in own.read_text().split() if Path(f"/proc/{word}").exists() and int(word) != os.getpid()
    ]
