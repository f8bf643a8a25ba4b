"""Bitcode inside an object: the sections ``.llvmbc`` and ``.llvmcmd`` of ``clang -Xclang -fembed-bitcode=all``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.objects.elf import ObjectFile

_MAGIC: Final = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
"""Of bitcode, and of bitcode in its wrapper (llvm/Bitcode/BitcodeReader.h, isBitcode)."""


@dataclass(frozen=True)
class Embedded:
    """A module and the arguments of ``clang -cc1`` as they were embedded."""

    bitcode: bytes
    arguments: tuple[str, ...]


def read_embedded(path: Path) -> Embedded:
    """Read both sections of an object file.

    Raises:
        NotFoundError: it has none.
        InvalidError: it is no object that we read, or holds something else, or the modules of several objects.

    """
    file = ObjectFile.read(path)
    bitcode, command = file.content(".llvmbc"), file.content(".llvmcmd")
    if not bitcode:
        raise NotFoundError(f"{path} has no section .llvmbc: compile with -Xclang -fembed-bitcode=all")
    if not bitcode.startswith(_MAGIC):
        raise InvalidError(f"{path}: the section .llvmbc holds no bitcode")
    arguments = tuple(os.fsdecode(command).rstrip("\0").split("\0")) if command else ()
    if arguments.count("-cc1") > 1:
        raise InvalidError(f"{path} holds {arguments.count('-cc1')} modules, as a linked file does; add the objects")
    return Embedded(bitcode, arguments)
