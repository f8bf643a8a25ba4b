"""Small corpora, made from C and C++ by the compilers that are here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module, Program
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import compile_by

_LANGUAGES: Final = {".c": "c", ".cpp": "c++"}
_FLAGS: Final = (
    *("-triple", "x86_64-unknown-linux-gnu", "-mrelocation-model", "pic", "-pic-level", "2", "-funwind-tables=2"),
    *("-ffunction-sections", "-fdata-sections", "-target-cpu", "x86-64"),
)


def write_corpus(
    folder: Path,
    sources: Mapping[str, str],
    programs: Sequence[Program] = (),
    compiler: str = "zig",
    level: str = "-Oz",
) -> Corpus:
    """Write a corpus of these sources, by the modules' names; the folder of a name is its project."""
    modules = []
    for name, text in sources.items():
        source = folder / "sources" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        language = _LANGUAGES[source.suffix]
        module = Module(name, folder, (*_FLAGS, level), name.partition("/")[0], name, language)
        module.bitcode.parent.mkdir(parents=True, exist_ok=True)
        module.bitcode.with_name(f"{module.bitcode.name[:-3]}.cmd").write_bytes(_ended(module.arguments))
        frontend = ["-cc1", "-emit-llvm-bc", "-disable-llvm-passes", *module.arguments, "-x", language, str(source)]
        done = compile_by([*Compiler.find(compiler).start, *frontend, "-o", str(module.bitcode)], Limits())
        assert done.ok, done
        modules.append(module)
    corpus = Corpus(folder, modules, programs)
    corpus.write()
    return corpus


def _ended(words: Sequence[str]) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


def compile_all(corpus: Corpus, folder: Path, compiler: str = "zig") -> dict[str, Path]:
    """Compile all modules, and give their objects by the modules' names."""
    objects = {}
    for number, module in enumerate(corpus.modules):
        objects[module.name] = folder / f"{number}.o"
        done = compile_by(compile_command(Compiler.find(compiler), module, objects[module.name]), Limits())
        assert done.ok, done
    return objects
