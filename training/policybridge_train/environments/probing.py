"""Finding out which features a compiler sends, by letting it compile a few lines of C."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from policybridge_client.llvm.tasks import Task
from policybridge_core.errors import InvalidError
from policybridge_serdes import Signature
from policybridge_train.environments.compilation import WaitingCompilation
from policybridge_train.environments.objective import Setting

_SOURCE: Final = "static int f(int x) { return x * 3 + 1; }\nint g(int x) { return f(x) + f(x + 7); }\n"


def probed(task: Task, setting: Setting) -> Signature:
    """Give the signature of a task, as this compiler announces it.

    Raises:
        InvalidError: it never asks about the task, or does not compile.

    """

    def command(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
        source = folder / "probe.c"
        source.write_text(_SOURCE, encoding="ascii")
        words = ["-cc1", "-Oz", "-emit-obj", "-x", "c", "-o", str(folder / "probe.o"), str(source)]
        return [*setting.compiler.start, *words], ()

    with closing(WaitingCompilation(task, command, setting.limits)) as compilation:
        compilation.next()
        if compilation.signature is not None:
            return compilation.signature
        compilation.succeed()
    raise InvalidError(f"{setting.compiler.name} asks nothing about the task {task.name!r}")
