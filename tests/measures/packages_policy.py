"""Debian packages with a policy, linked and stripped: ``python -m tests.measures.packages_policy --lto none``.

Each package of packages.toml is built at -Oz with ``-ffunction-sections`` and LLD 22 with ``--gc-sections --icf=all``:
by LLVM's own decisions, and with a policy of a local server. Without LTO clang asks it by ``-fpass-plugin``; with
``--lto thin`` or ``full``, LLD asks it at link time. ``thin-1`` is ThinLTO by one job, where the plugin sets switches.
The package's own tests run on both builds. Sizes are those of the stripped programs and libraries. Steps that an
earlier call has done in DIR are not repeated.

It needs what ``tests.measures.packages`` needs, lld-22, and for the tests of packages doctest-dev, catch2, libfmt-dev,
libcppunit-dev, libutfcpp-dev, libgtest-dev, libgmock-dev and googletest.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import msgspec

from policybridge_train.compiling.lto import MODES, Mode
from policybridge_train.corpus.parts import part_of
from tests.conftest import running_server
from tests.measures.packages import Package, Size, add_options, measure_each, plugin_in, read_recipes

Kind = Mode | Literal["none", "thin-1"]
KINDS: Final[tuple[Kind, ...]] = ("none", *MODES, "thin-1")

# Libtool drops -flto and the path of a linker from LDFLAGS, and zlib probes for shared libraries without LDFLAGS.
_LINKER: Final = "-Qunused-arguments --ld-path=ld.lld-22 -Wl,--undefined-version"
_LINKED: Final = "-Wl,--gc-sections,--icf=all"


class Linked(msgspec.Struct, frozen=True):
    """A package; both builds have passed its tests."""

    language: str
    part: str
    plain: Size
    policy: Size


@dataclass(frozen=True)
class Bench:
    """Builds one package in both ways.

    Attributes:
        package: the sources, and the folders of their builds.
        kind: of LTO, or none.
        policy: decides: without LTO in clang, else at link time.
        plugin: the library for clang and LLD.
        server: the address of the server that has the policy.

    """

    package: Package
    kind: Kind
    policy: str
    plugin: Path
    server: str

    def measure(self) -> Linked:
        """Build and test.

        Raises:
            PreconditionError: a step fails; its log says why.

        """
        plain, decided = f"plain-{self._mode}", f"{self.policy}-{self.kind}"
        asking = {"SERVER": self.server, "POLICY": self.policy, "FALLBACK": "error"}
        deciding = {f"POLICYBRIDGE_{name}": value for name, value in asking.items()}
        package = self.package
        package.once("source", package.fetch)
        package.once(plain, lambda: package.build(plain, self._environment()))
        package.once(decided, lambda: package.build(decided, {**self._environment(loads=True), **deciding}))
        part = part_of(package.name).value
        return Linked(package.recipe.language, part, package.size(plain), package.size(decided))

    @property
    def _mode(self) -> Mode | Literal["none"]:
        # LLVM's own decisions are the same in one job.
        return "thin" if self.kind == "thin-1" else self.kind

    def _environment(self, *, loads: bool = False) -> dict[str, str]:
        flags, compiling, linking = "-Oz -ffunction-sections", "", ""
        if self.kind != "none":
            flags = f"{flags} -flto={self._mode}"
            linking = f" -Wl,--load-pass-plugin={self.plugin}" if loads else ""
        elif loads:
            compiling = f" -fpass-plugin={self.plugin}"
        linker = f"{_LINKER} -Wl,--thinlto-jobs=1" if self.kind == "thin-1" else _LINKER
        drivers = {"CC": f"clang-22 {linker}{compiling}", "CXX": f"clang++-22 {linker}{compiling}"}
        tools = {name: f"llvm-{name.lower()}-22" for name in ("AR", "NM", "RANLIB")}
        return {"CFLAGS": flags, "CXXFLAGS": flags, "LDFLAGS": f"{flags} {_LINKED}{linking}", **drivers, **tools}


def main(words: Sequence[str] | None = None) -> int:
    """Measure packages and print them; the exit status is 1 if one fails, or 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.packages_policy", description=__doc__)
    add_options(parser, [*read_recipes()])
    parser.add_argument("--lto", choices=KINDS, required=True)
    parser.add_argument("--policy", default="size", metavar="NAME")
    asked = parser.parse_args(words)
    plugin = plugin_in(asked.plugins)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(None, Path(folder)) as server:
        bench = partial(Bench, kind=asked.lto, policy=asked.policy, plugin=plugin, server=server.socket)
        return measure_each(asked, lambda package: bench(package).measure(), _told)


def _told(name: str, found: Linked) -> str:
    sizes = ", ".join(
        _change(each, getattr(found.plain, each), getattr(found.policy, each)) for each in Size.__struct_fields__
    )
    return f"{name} ({found.language}, {found.part}): {sizes}; its tests passed"


def _change(what: str, plain: int, policy: int) -> str:
    return f"{what} {plain:,} -> {policy:,} ({100 * (policy / plain - 1):+.2f} %)"


if __name__ == "__main__":
    sys.exit(main())
