"""The size of an object file's code, as ``size`` counts it."""

from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile


def text_size(file: Path) -> int:
    """Give the bytes of an ELF file that a program maps and never writes: code, constants, unwind tables.

    The file's own size would mislead: it counts relocations and names too, which grow with each function that is kept.
    """
    with file.open("rb") as stream:
        sections = ELFFile(stream).iter_sections()
        return sum(section["sh_size"] for section in sections if _is_text(section["sh_flags"]))


def _is_text(flags: int) -> bool:
    # What is writable is data, unless it is code as well.
    return bool(flags & SH_FLAGS.SHF_EXECINSTR) or flags & _MAPPED == SH_FLAGS.SHF_ALLOC


_MAPPED = SH_FLAGS.SHF_ALLOC | SH_FLAGS.SHF_WRITE
