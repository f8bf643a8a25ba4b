"""One compilation under limits whose decisions a policy makes, by LLVM's interactive mode."""

from collections.abc import Sequence
from subprocess import DEVNULL
from tempfile import TemporaryFile

from msgspec.structs import replace

from policybridge_client.contract import Connection
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.process import KEPT_OUTPUT, Surroundings
from policybridge_client.llvm.statistics import Report
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.result import CompileResult
from policybridge_train.processes.process import Running, Status


def compile_hosted(
    command: Sequence[str],
    config: HostConfig,
    limits: Limits,
    running: Running,
    *,
    connection: Connection | None = None,
) -> CompileResult:
    """Run a compiler as `run_compiler` does, under limits.

    A policy that fails is a failure of the compilation, if ``config`` says so (``fallback="error"``). Where it
    succeeds, the message says how many decisions the policy did not make. ``connection`` replaces the server's.

    Raises:
        OSError: it cannot be started.
        PreconditionError: all compilers of ``running`` were ended before.

    """
    with TemporaryFile() as said:
        try:
            surroundings = Surroundings(None, None, DEVNULL, said, said, limits, running.counted)
            report = run_compiler(command, config, surroundings, connection=connection)
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))
        said.seek(0)
        words = said.read(KEPT_OUTPUT).decode(errors="replace").strip()
    if running.over:
        report.raise_error()
    if report.error is not None and not report.late:
        return CompileResult(status=Status.FAILED, seconds=report.cpu_seconds, message=f"no advice: {report.error}")
    done = CompileResult.of(report.status, report.cpu_seconds, words, limits.seconds if report.late else None)
    return replace(done, message=_note(report), sessions=report.session_ids) if done.ok else done


def _note(report: Report) -> str:
    counted = report.statistics
    if report.fallback is not None:
        return f"not all decisions are the policy's: {report.fallback.reason}"
    return f"{counted.limited} decisions are LLVM's own, beyond the growth limit" if counted.limited else ""
