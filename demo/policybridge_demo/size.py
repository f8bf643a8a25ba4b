"""The size of an object file's code, as ``size`` counts it."""

from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile


def text_size(file: Path) -> int:
    """Return the number of bytes that a program maps read-only from an ELF file: code, constants, unwind tables.

    The size of the file is not used: it also counts relocations and names, which grow with each function.
    """
    with file.open("rb") as stream:
        sections = ELFFile(stream).iter_sections()
        return sum(section["sh_size"] for section in sections if _is_text(section["sh_flags"]))


def _is_text(flags: int) -> bool:
    # A writable section is data, unless it also holds code.
    return bool(flags & SH_FLAGS.SHF_EXECINSTR) or flags & _MAPPED == SH_FLAGS.SHF_ALLOC


_MAPPED = SH_FLAGS.SHF_ALLOC | SH_FLAGS.SHF_WRITE
