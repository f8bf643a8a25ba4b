"""What a compilation of one module came to."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Compiled, Limits, Status
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.spills import remark_arguments, spill_costs
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.pool import Running
from policybridge_train.scoring.contenders import Contender


class Measured(msgspec.Struct, frozen=True):
    """A compilation of one module.

    Attributes:
        status: ``ok``, ``failed``, ``crashed``, ``timeout``, or ``skipped`` where the baseline's is not ``ok``. Where
            it is not ``ok``, the sizes say nothing.
        seconds: the processor time that the compiler took.
        message: why it failed, or what is to be known of it.
        text: bytes that are loaded and not written, as llvm-size counts them.
        exec: bytes of code.
        sections: bytes of each loaded section, by its name.
        spills: the weighted cost of spills of all functions (see `spill_costs`); ``None`` where it was not asked for.
        digest: SHA-256 of the object, in hex.
        cached: whether it was compiled in an earlier run.

    """

    status: str
    seconds: float = 0.0
    message: str = ""
    text: int = 0
    exec: int = 0
    sections: Mapping[str, int] = {}
    spills: float | None = None
    digest: str = ""
    cached: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is an object."""
        return self.status == Status.OK.value


@dataclass(frozen=True)
class Bench:
    """Where modules are compiled and measured.

    Attributes:
        limits: what each compilation may take.
        running: where compilers are counted while they run.
        spills: whether the cost of spills is wanted. It changes no object.

    """

    compiler: Compiler
    limits: Limits
    running: Running
    spills: bool = False

    def measure(self, contender: Contender, module: Module, output: Path) -> Measured:
        """Compile a module to ``output`` and measure the object; what goes wrong is told by the result.

        Raises:
            PreconditionError: all compilers were ended.

        """
        remarks = output.with_suffix(".yaml")
        extra = remark_arguments(remarks) if self.spills else ()
        try:
            compilation = contender.compilation(self.compiler, module, output, extra)
        except PolicyBridgeError as error:
            return Measured(Status.FAILED.value, message=str(error))
        try:
            done = compilation.run(self.limits, self.running)
            return self._measured(done, output, remarks)
        except (InvalidError, OSError) as error:
            return Measured(Status.FAILED.value, message=str(error))
        finally:
            remarks.unlink(missing_ok=True)

    def _measured(self, done: Compiled, output: Path, remarks: Path) -> Measured:
        if not done.ok:
            return Measured(done.status.value, done.seconds, done.message)
        made = ObjectFile.read(output)
        return Measured(
            status=done.status.value,
            seconds=done.seconds,
            message=done.message,
            text=made.text,
            exec=made.exec,
            sections=made.sizes(loaded=True),
            spills=sum(spill_costs(remarks).values()) if self.spills else None,
            digest=hashlib.sha256(made.data).hexdigest(),
        )
