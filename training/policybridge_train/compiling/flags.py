"""Which of a recorded module's arguments matter once it is bitcode, so that another LLVM takes them too.

The arguments are those of ``clang -cc1`` (clang/include/clang/Driver/Options.td, CC1Option). Those of the preprocessor
and of the front end have done their work; what is left steers LLVM's pipeline and its code generator.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

_WITH_VALUE: Final = frozenset(
    shlex.split("""
        -triple -mrelocation-model -pic-level -target-cpu -target-feature -tune-cpu -target-abi -stack-protector
        -stack-protector-buffer-size -mllvm -mcode-model -mfloat-abi -mthread-model -split-stacks
    """)
)
_ALONE: Final = re.compile(
    r"-O[0-3sz]?|-pic-is-pie|-ffunction-sections|-fdata-sections|-fno-builtin.*|-ffreestanding|-vectorize-(loops|slp)"
    r"|-f(no-)?unroll-loops|-funwind-tables=\d|-mframe-pointer=[\w-]+|-exception-model=\w+|-faddrsig|-fno-plt"
    r"|-mconstructor-aliases|-fno-jump-tables|-munwind-tables|-fuse-init-array|-fno-use-init-array|-mnoexecstack"
    r"|-femulated-tls|-f(no-)?unique-section-names|-mcode-model=\w+|-mcmodel=\w+|-ffp-contract=\w+|-fmath-errno"
    r"|-fwrapv|-fdwarf2-cfi-asm|-flto|-disable-free|-fsanitize=.*|-fxray.*"
)


def backend_arguments(arguments: Sequence[str]) -> list[str]:
    """Give the arguments that still matter for bitcode, in their order."""
    return list(_kept(arguments))


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            value = next(words, None)
            if value is not None:
                yield from (word, value)
        elif _ALONE.fullmatch(word):
            yield word
