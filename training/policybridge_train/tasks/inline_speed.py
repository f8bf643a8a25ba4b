"""Inlining for speed: a program is compiled by a policy, linked, run, and the instructions that it takes are counted.

Instructions are counted by valgrind, so that the same program always costs the same. Time is never measured.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_train.compiling.compilation import ByDecisions, Decisions, Plain
from policybridge_train.compiling.decider import Decider
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.compiling.module import Module, Program
from policybridge_train.compiling.result import CompileResult, DecisionLog, keyed_by_utf8
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import compile_by
from policybridge_train.tasks.allocation import SPEED
from policybridge_train.tasks.benchmarks import BENCHMARKS, Benchmark, read_benchmarks
from policybridge_train.tasks.callgrind import Counted, count, find_valgrind
from policybridge_train.tasks.inline import InlineForSize, unit_of
from policybridge_train.tasks.task import Asking, Case

COUNTS: Final = ("inclusive", "own")
_OBJECT: Final = Wanted(arguments=SPEED, keep=True)


class InlineForSpeed(InlineForSize):
    """Inlining at -O2 in the programs of a corpus for which there is a benchmark; a case is a program.

    A function's cost is the instructions that it and its callees execute while the benchmark runs. An inlined callee
    costs as much as before, less the saving of inlining. A function that never runs, or is inlined everywhere, has
    no cost, and its decisions get no credit.

    Args:
        compiler: a clang's name or path; by default the newest that is found. It links, too.
        plugins: the folder of the plugin; see `InlineForSize`.
        benchmarks: a file of `read_benchmarks`; by default ours, for packages of Debian.
        counted: ``inclusive``, or ``own`` for the instructions of the function alone, which add up to the program's.
        seconds: limit of each compilation and of each run.
        memory: the same, in MiB.

    Raises:
        NotFoundError: there is no such compiler, no plugin that it loads, or no valgrind.
        InvalidError: an option is none.

    """

    name = "inline-speed"

    def __init__(  # noqa: PLR0913, PLR0917 - options of the command line
        self,
        compiler: str = "",
        plugins: str = "",
        benchmarks: str = "",
        counted: str = "inclusive",
        seconds: str = "",
        memory: str = "",
    ) -> None:
        super().__init__(compiler, plugins, seconds, memory)
        if counted not in COUNTS:
            raise InvalidError(f"counted={counted} is none of {', '.join(COUNTS)}")
        find_valgrind()
        self._counted = counted
        self._benchmarks = read_benchmarks(Path(benchmarks).absolute()) if benchmarks else BENCHMARKS
        self._programs: dict[str, tuple[Program, Benchmark]] = {}

    def cases(self, corpus: Path | None) -> Sequence[Case]:
        """Give the programs; see `Task`.

        Raises:
            InvalidError: the corpus is missing, or has no program with a benchmark.

        """
        super().cases(corpus)
        opened = Corpus.open(corpus) if corpus else None
        found = [(one.program_of(opened), one) for one in self._benchmarks] if opened else []
        self._programs = {f"{made.project}/{made.name}": (made, one) for made, one in found if made is not None}
        if not self._programs:
            known = ", ".join(f"{one.project}/{one.program}" for one in self._benchmarks)
            raise InvalidError(f"{corpus} has no program with a benchmark; there are benchmarks for {known}")
        return [Case(name, made.project, self._language(made)) for name, (made, _) in self._programs.items()]

    def modules_of(self, case: Case) -> Sequence[Module] | None:  # noqa: ARG002 - of `OfModules`
        """Give nothing: a program is compiled, linked and run."""
        return None

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Compile a program by the policy, or by LLVM's own decisions where ``asking`` is ``None``, and count.

        ``instructions`` is the total of the run.
        """
        self._check(case)
        decider = asking.decider(INLINE.name) if asking else Plain()
        try:
            counts, made = self._built(case, decider)
        except (PolicyBridgeError, OSError) as error:
            return CompileResult.failed(str(error))
        return self._ran(counts, [session for each in made for session in each.sessions])

    def measured(self, case: Case, decisions: Decisions) -> CompileResult:
        """Compile a program with decisions by site; the costs are the functions' own instructions, which add up.

        Raises:
            NotFoundError: there is no such program.
            PolicyBridgeError: it cannot be built or run.

        """
        self._check(case)
        counts, made = self._built(case, ByDecisions(decisions))
        logs = [each.log for each in made if each.log is not None]
        log = DecisionLog([site for each in logs for site in each.sites], logs[0].level)
        return CompileResult(keyed_by_utf8(counts.own), [], {"instructions": float(counts.total)}, log=log)

    def _check(self, case: Case) -> None:
        if case.name not in self._programs:
            raise NotFoundError(f"there is no program {case.name!r} with a benchmark in the corpus that was opened")

    def _built(self, case: Case, decider: Decider) -> tuple[Counted, Sequence[CompileResult]]:
        """Compile a program's modules, link them, and count the instructions of the run."""
        program, benchmark = self._programs[case.name]
        with TemporaryDirectory(prefix="policybridge-train-") as name:
            folder, made, objects = Path(name), list[CompileResult](), list[Path]()
            for number, module in enumerate(program.modules):
                made.append(compile_module(self.tool, self._module(module), decider, _OBJECT).checked(module))
                objects.append(folder / f"{number}.o")
                objects[-1].write_bytes(made[-1].content)
            linked = self._link(program, objects, folder)
            benchmark.write(folder)
            return count(linked, benchmark.arguments, folder, self.tool.limits, self.tool.running), made

    def _ran(self, counts: Counted, sessions: Sequence[str]) -> CompileResult:
        shown = counts.own if self._counted == "own" else counts.inclusive
        costs = {unit_of(function): float(value) for function, value in shown.items()}
        return CompileResult(costs, sessions, {"instructions": float(counts.total)})

    def _link(self, program: Program, objects: Sequence[Path], folder: Path) -> Path:
        # Its name is as long in each run, and nothing is bound late: both would be counted.
        mode = ["--driver-mode=g++"] if self._language(program) == "c++" else []
        command = [*self.compiler.start, *mode, *map(str, objects), "-o", str(folder / "program"), "-Wl,-z,now", "-lm"]
        done = compile_by([*command, "-lpthread", "-ldl"], self.tool.limits, running=self.tool.running)
        if not done.ok:
            raise PreconditionError(f"{program.name} cannot be linked: {done.message}")
        return folder / "program"

    def _module(self, name: str) -> Module:
        return self.module(Case(name, ""))

    def _language(self, program: Program) -> str:
        languages = {self._module(name).language for name in program.modules}
        return "c++" if "c++" in languages else "c"
