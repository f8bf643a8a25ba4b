"""The target of a compilation, as clang tells it once for a compiler and its options."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.versions import remembered_name

_SWITCHES: Final = frozenset([
    "-m16", "-m32", "-m64", "-mx32", "-mthumb", "-mno-thumb", "-marm", "-mbig-endian", "-mlittle-endian", "-EB", "-EL",
])  # fmt: skip
_WITH_VALUES: Final = ("--target=", "-march=", "-mcpu=", "-mabi=")
_WITH_WORDS: Final = ("-target", "-arch")
"""Options that change the triple, which clang is asked with."""

_TIMEOUT: Final = 30.0


def target_of(compiler: CompilerCommand) -> str:
    """Return the architecture of the triple that clang compiles for, such as ``x86_64``, as modules have it.

    Empty where it is not known: of other compilers, beside a response or configuration file, and of a compiler whose
    answer cannot be stored, because asking takes 20 ms.
    """
    words = _words(compiler.arguments)
    if compiler.kind is not Kind.CLANG or words is None:
        return ""
    # The name may begin with the target: aarch64-linux-gnu-clang.
    question = "\n".join([f"target {Path(compiler.start[-1]).name}", *words])
    return remembered_name(compiler.start, question, lambda: _ask(compiler.start, words))


def _words(arguments: Sequence[str]) -> list[str] | None:
    """Give the words on which the triple depends; ``None``: others may, too."""
    words: list[str] = []
    before = ""
    for word in arguments:
        if before in _WITH_WORDS:
            words += [before, word]
            before = ""
            continue
        if word.startswith(("@", "--config", "-config")) or word in ("-triple", "-cc1"):
            return None
        if word in _SWITCHES or word.startswith(_WITH_VALUES):
            words.append(word)
        before = word
    return words


def _ask(start: Sequence[str], words: Sequence[str]) -> str | None:
    try:
        said = subprocess.run(
            [*start, *words, "-print-effective-triple"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.decode(errors="replace").partition("-")[0]
