"""The demo's sources: C and C++ files of the ``ziglang`` wheel, so no other download is needed.

Every path is relative to the wheel's ``lib`` folder, in which every compilation runs. So no object contains an absolute
path, and compiling a module twice gives the same bytes.

LLVM 19 does not send its own decisions; the rule ``cost_estimate < 5`` replaces them. LLVM 22 shows that this rule is
wrong once in libtsan's tsan_mman.cpp and once in sanitizer_common/sanitizer_thread_registry.cpp; there the objects of
clang-19 would differ from plain -Oz. So the demo leaves these two to the training of inliner-imitation. This slightly
favours policies that decide by cost: with the two, ``cost_estimate < 5`` would be right 13,782 times in 13,784 on the
demo.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

Language = Literal["c", "c++"]


class CorpusError(Exception):
    """Sources of the demo are missing."""


@dataclass(frozen=True)
class Module:
    """One source file, by its path in the wheel's ``lib`` folder."""

    path: str

    @property
    def language(self) -> Language:
        """The language, by the file name."""
        return "c" if self.path.endswith(".c") else "c++"

    @property
    def library(self) -> str:
        """The library of the file; all files in ``libc`` belong to musl."""
        folder = PurePosixPath(self.path).parts[0]
        return "musl" if folder == "libc" else folder


def demo_modules() -> list[Module]:
    """Return the modules that the demo compiles, the slowest first. No policy was trained on them."""
    listing = Path(__file__).parent / "modules.txt"
    return [Module(line) for line in listing.read_text(encoding="utf-8").splitlines()]


def library_root() -> Path:
    """Return the wheel's ``lib`` folder.

    Raises:
        CorpusError: the wheel is not installed.

    """
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CorpusError("the sources come with the package ziglang: pip install 'policybridge[llvm]'")
    return Path(spec.origin).parent / "lib"


def check_sources(modules: Iterable[Module]) -> None:
    """Check that the installed wheel has all ``modules``: releases move and rename files.

    Raises:
        CorpusError: files are missing; the message names some of them and the wheel's version.

    """
    root = library_root()
    missing = [module.path for module in modules if not (root / module.path).is_file()]
    if missing:
        raise CorpusError(
            f"ziglang {version('ziglang')} lacks {len(missing)} of the sources, {', '.join(missing[:3])} among them; "
            "constraints.txt names a version that has them all"
        )
