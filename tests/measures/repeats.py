"""Objects of the same choices of passes: ``python -m tests.measures.repeats --corpus DIR --compiler clang-22``.

Each module of the corpus is compiled several times by each alternative of a policy, and by groups of everything that
may be skipped, added or set, for all of its functions; of a group whose objects differ each choice is tried alone.
Addresses differ from run to run (address space layout randomization), the objects of one choice must not. The
status is 1 if any differs.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice
from policybridge_client.decisions.passes import (
    ALTERNATIVES,
    CODEGEN_PASSES,
    IR_PASSES,
    MODULE_PIPELINES,
    PIPELINES,
    SWITCHES,
    checked_action,
)
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compilation import ByDecisions
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus

Choices = Mapping[str, tuple[str, ...]]

_RANDOMIZED: Final = Path("/proc/sys/kernel/randomize_va_space")

GROUPS: Final[Choices] = {
    "all @early": tuple(f"add {pipeline}@early" for pipeline in PIPELINES),
    "all @last": tuple(f"add {pipeline}@last" for pipeline in PIPELINES),
    "all switches": tuple(f"set {switch}" for switch in SWITCHES),
    "all skips": tuple(f"skip {name}" for name in (*IR_PASSES, *CODEGEN_PASSES)),
    "outliner": tuple(f"add {pipeline}@last" for pipeline in MODULE_PIPELINES),
}
"""Choices that are tried together, by name."""


def differing(tool: CompileTool, module: Module, choices: Choices, repeats: int) -> Iterator[str]:
    """Compile a module by each of ``choices``, and give the names of those whose objects differ."""
    for name, words in choices.items():
        if not _same(tool, module, words, repeats):
            yield name
            if name in GROUPS:
                yield from differing(tool, module, {each: (each,) for each in words}, repeats)


def _same(tool: CompileTool, module: Module, words: Sequence[str], repeats: int) -> bool:
    pairs = [(checked_action(action), rest) for action, _, rest in (each.partition(" ") for each in words)]
    chosen = tuple(PassChoice(ALL_FUNCTIONS, action, rest) for action, rest in pairs if action is not None)
    made = [compile_module(tool, module, ByDecisions({}, chosen), Wanted()) for _ in range(repeats)]
    return len({(each.status, each.digest) for each in made}) == 1


def _hash(module: Module) -> bytes:
    return hashlib.sha256(module.name.encode(errors="surrogateescape")).digest()


def main(words: Sequence[str] | None = None) -> int:
    """Compile and compare; the exit status is 1 if objects differ, or the corpus cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.repeats", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--compiler", default="clang-22", metavar="NAME")
    parser.add_argument("--plugins", type=Path, default=Path(".cache/native/lib"), metavar="DIR")
    parser.add_argument(
        "--count", type=int, default=20, metavar="N", help="modules, drawn by the hashes of their names"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="compiles of a module by a choice")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the alternatives and groups")
    asked = parser.parse_args(words)
    known = {**GROUPS, **ALTERNATIVES}
    if unknown := set(asked.only or ()) - set(known):
        parser.error(f"{min(unknown)!r} is none of {', '.join(known)}")
    if _RANDOMIZED.read_text(encoding="ascii").strip() == "0":
        sys.stderr.write(f"{parser.prog}: addresses are the same in every run ({_RANDOMIZED} is 0)\n")
        return 1
    choices = {name: known[name] for name in asked.only or known}
    total = Counter[str]()
    try:
        tool = CompileTool(Compiler.find(asked.compiler), plugins=asked.plugins)
        modules = sorted(Corpus.open(asked.corpus).modules, key=_hash)[: asked.count]
        for module in modules:
            for name in differing(tool, module, choices, asked.repeats):
                print(f"{module.name}: objects differ: {name}", flush=True)
                total[name] += 1
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    print(f"{asked.compiler}: {len(modules)} modules, {len(choices)} choices, {asked.repeats} compiles of each")
    print("\n".join(f"{count} modules differ: {name}" for name, count in total.most_common()) or "no object differs")
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
