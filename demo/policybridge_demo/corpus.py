"""The demo's sources: C and C++ files that the ``ziglang`` wheel ships, so that nothing has to be downloaded for them.

Every path is relative to the wheel's ``lib`` folder, where every compile runs: no absolute path can reach an object,
and two compiles of one module are byte-identical.

LLVM 19 does not tell its own decisions; ``cost_estimate < 5`` stands for them. In libtsan's tsan_mman.cpp and
sanitizer_common/sanitizer_thread_registry.cpp that is wrong once each, as LLVM 22 tells, and clang-19's objects are
then not those of a plain -Oz. So these two are training modules. That flatters policies that go by the cost a little:
with the two, ``cost_estimate < 5`` would be right 13,782 times in 13,784 on the demo.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

Language = Literal["c", "c++"]


class CorpusError(Exception):
    """The sources are not there as they should be."""


@dataclass(frozen=True)
class Module:
    """One source file, by its path in the wheel's ``lib`` folder."""

    path: str

    @property
    def language(self) -> Language:
        """The language, by the file's name."""
        return "c" if self.path.endswith(".c") else "c++"

    @property
    def library(self) -> str:
        """What the file belongs to; ``libc`` holds musl alone here."""
        folder = PurePosixPath(self.path).parts[0]
        return "musl" if folder == "libc" else folder


def demo_modules() -> list[Module]:
    """Give the modules that the demo compiles, those that take longest first; no policy was trained on them."""
    return _listed("demo")


def training_modules() -> list[Module]:
    """Give the modules that the bundled policy learnt from. Templates of headers may occur on both sides."""
    return _listed("training")


def _listed(name: str) -> list[Module]:
    listing = Path(__file__).parent / "modules" / f"{name}.txt"
    return [Module(line) for line in listing.read_text(encoding="utf-8").splitlines()]


def library_root() -> Path:
    """Find the wheel's ``lib`` folder.

    Raises:
        CorpusError: the wheel is not installed.

    """
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise CorpusError("the sources come with the package ziglang: pip install 'policybridge[llvm]'")
    return Path(spec.origin).parent / "lib"


def check_sources(modules: Iterable[Module]) -> None:
    """Find out whether the installed wheel holds all of ``modules``; releases move and rename files.

    Raises:
        CorpusError: some are missing; the message names them and the wheel's version.

    """
    root = library_root()
    missing = [module.path for module in modules if not (root / module.path).is_file()]
    if missing:
        raise CorpusError(
            f"ziglang {version('ziglang')} lacks {len(missing)} of the sources, {', '.join(missing[:3])} among them; "
            "constraints.txt names a version that has them all"
        )
