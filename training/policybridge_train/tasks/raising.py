"""Reports an error of a user's task by the task, the method and the line, without our own stack."""

from collections.abc import Iterator
from contextlib import contextmanager

from policybridge_core.authors import frames, text_of
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.task import Asking, Case, Task


@contextmanager
def told_by(task: str, method: str) -> Iterator[None]:
    """Report an error of the block as the task's.

    Raises:
        InvalidError: the block raised an error that is neither ours nor the system's.

    """
    try:
        yield
    except (PolicyBridgeError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise InvalidError(_told(task, method, error)) from error


def run_case(task: Task, case: Case, asking: Asking | None) -> CompileResult:
    """Run a case. An error of the task fails this case alone.

    Raises:
        PolicyBridgeError: the task raised it: the server is away, or all was stopped.

    """
    try:
        done: object = task.run(case, asking)
    except PolicyBridgeError:
        raise
    except (Exception, SystemExit) as error:
        return CompileResult.failed(_told(task.name, f"run of {case.name}", error))
    if isinstance(done, CompileResult):
        return done
    given = type(done).__name__
    return CompileResult.failed(f"run of {case.name} of the task {task.name} returned {given} and no CompileResult")


def _told(task: str, method: str, error: BaseException) -> str:
    *_, (file, line, _) = frames(error.__traceback__)
    what = f"{type(error).__name__} in {method}: {text_of(error)}".removesuffix(": ")
    return f"the task {task} raised {what} ({file}, line {line})"
