"""Shell commands that repeat a row of a score, in any folder."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compiler import CompileTool
from policybridge_train.compiling.lto import LinkedModule
from policybridge_train.compiling.module import Module
from policybridge_train.scoring.contenders import Contender
from policybridge_train.scoring.results import ModuleRow, ProgramRow


@dataclass(frozen=True)
class Repeating:
    """How rows are repeated.

    Attributes:
        words: the arguments of ``policybridge score`` without compiler, contenders and selection; all paths are
            absolute.

    """

    words: tuple[str, ...]

    def module(
        self, row: ModuleRow, tool: CompileTool, baseline: Contender, candidate: Contender, module: Module
    ) -> ModuleRow:
        """Give the row with the words that compile the module in both ways, where it became larger or failed."""
        spilled = row.after.totals.get("spills", 0) > row.before.totals.get("spills", 0)
        if row.ok and row.after.text <= row.before.text and row.after.exec <= row.before.exec and not spilled:
            return row
        try:
            old = in_shell(baseline.decider.compilation(tool, module, Path("baseline.o")).again)
            new = in_shell(candidate.decider.compilation(tool, module, Path("candidate.o")).again)
        except PolicyBridgeError:
            return row
        words = f'cd "$(mktemp -d)" && {old} && {new} && size baseline.o candidate.o'
        if isinstance(module, LinkedModule):
            words = self._again(tool, baseline, candidate, "--program", module.name)
        elif not (old and new):
            words = self._again(tool, baseline, candidate, "--module", row.module)
        return msgspec.structs.replace(row, repeat=words)

    def program(self, row: ProgramRow, tool: CompileTool, baseline: Contender, candidate: Contender) -> ProgramRow:
        """Give the row with the words that score the program again, where it became larger or was not linked."""
        if row.before and row.after and row.after.text <= row.before.text and row.after.exec <= row.before.exec:
            return row
        name = f"{row.project}/{row.program}"
        return msgspec.structs.replace(row, repeat=self._again(tool, baseline, candidate, "--program", name))

    def _again(self, tool: CompileTool, baseline: Contender, candidate: Contender, *what: str) -> str:
        own = [sys.executable, "-m", "policybridge_client.cli", "score", *self.words]
        compiler = tool.compiler
        which = ["--compiler", compiler.start[0] if compiler.loads_plugins else compiler.name]
        contenders = ["--baseline", baseline.argument, "--candidate", candidate.argument]
        return in_shell([*own, *which, *contenders, *what])


def in_shell(words: Sequence[str]) -> str:
    """Give a command for a shell; words that cannot be printed are quoted as bash and zsh read them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    known = {"\\": "\\\\", "'": "\\'"}
    bytes_ = (known.get(one, one) if one.isprintable() else _escaped(one) for one in word)
    return f"$'{''.join(bytes_)}'"


def _escaped(one: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in one.encode(errors="surrogateescape"))
