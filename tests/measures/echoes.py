"""Objects whose decisions repeat LLVM's own: ``python -m tests.measures.echoes --corpus DIR --compiler clang-22``.

Each module of the corpus is compiled three times: without the plugin; with the plugin asked about each call and each
optional pass, and no decision made; and with a store that has LLVM's own decision about each of these calls, and lets
all passes run. The three objects must be the same, bit for bit. The status is 1 if any differs. A compiler reads no
bitcode of a newer one: ``policybridge corpus debian --compiler clang-19`` records a corpus for clang 19.
"""

import argparse
import hashlib
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compilation import ByDecisions, Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import Status

NOT_REACHED: Final = tuple(
    PassChoice(ALL_FUNCTIONS, "skip", f"{name}.9999", "")
    for name in ("SimplifyCFGPass", "block-placement", "loop-reduce")
)
"""Choices that make LLVM ask about every optional pass, and let all run: of none there is a run with this number."""


def echo(tool: CompileTool, module: Module) -> Counter[str]:
    """Compile a module in the three ways, and count the outcome and the calls that LLVM asked about."""
    wanted = Wanted()
    plain = compile_module(tool, module, Plain(), wanted)
    if plain.status is not Status.OK:
        return Counter(unusable=1)
    asked = compile_module(tool, module, ByDecisions({}, NOT_REACHED), wanted)
    own = {site.key: site.default for site in asked.log.sites} if asked.log else {}
    stored = compile_module(tool, module, ByDecisions(own, NOT_REACHED), wanted)
    same = all(_is_copy(made, plain) for made in (asked, stored))
    if not same:
        warnings.warn(f"{module.name}: {asked.message or stored.message or 'another object'}", stacklevel=1)
    return Counter(modules=1, same=int(same), decisions=len(own))


def _is_copy(made: CompileResult, plain: CompileResult) -> bool:
    return made.status is Status.OK and made.digest == plain.digest


def _hash(module: Module) -> bytes:
    return hashlib.sha256(module.name.encode(errors="surrogateescape")).digest()


def main(words: Sequence[str] | None = None) -> int:
    """Compare and count; the exit status is 1 if an object differs, or the corpus cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.echoes", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--compiler", default="clang-22", metavar="NAME")
    parser.add_argument("--plugins", type=Path, default=Path(".cache/native/lib"), metavar="DIR")
    parser.add_argument(
        "--count", type=int, default=500, metavar="N", help="modules, drawn by the hashes of their names"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args(words)
    try:
        tool = CompileTool(Compiler.find(asked.compiler), plugins=asked.plugins)
        modules = sorted(Corpus.open(asked.corpus).modules, key=_hash)[: asked.count]
        with ThreadPoolExecutor(asked.jobs) as pool:
            total = sum(pool.map(lambda module: echo(tool, module), modules), Counter[str]())
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    print(
        f"{asked.compiler}: {total['same']} of {total['modules']} objects the same, {total['decisions']:,} decisions"
        f" about inlining, {total['unusable']} modules left out"
    )
    if asked.json:
        asked.json.write_text(json.dumps(total), encoding="utf-8")
    return int(total["same"] != total["modules"])


if __name__ == "__main__":
    sys.exit(main())
