"""Debian packages under LTO, with a policy at link time: ``python -m tests.measures.packages_lto --lto full``.

Each package of packages.toml is built at -Oz with ``-flto=MODE``, ``-ffunction-sections`` and LLD 22 with
``--gc-sections --icf=all``: by LLVM's own decisions, and with a policy of a local server, which LLD's plugin asks at
link time. Its own tests run on both builds. Sizes are those of the stripped programs and libraries. Steps that an
earlier call has done in DIR are not repeated.

It needs what ``tests.measures.packages`` needs, and lld-22.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_train.compiling.lto import MODES, Mode
from policybridge_train.corpus.parts import part_of
from tests.conftest import running_server
from tests.measures.packages import Package, Size, add_options, measure_each, plugin_in

# Libtool drops the path of a linker from LDFLAGS, and zlib probes for shared libraries without LDFLAGS.
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
        mode: of LTO.
        policy: decides at link time.
        plugin: the library for LLD.
        server: the address of the server that has the policy.

    """

    package: Package
    mode: Mode
    policy: str
    plugin: Path
    server: str

    def measure(self) -> Linked:
        """Build and test.

        Raises:
            PreconditionError: a step fails; its log says why.

        """
        plain, decided = f"plain-{self.mode}", f"{self.policy}-{self.mode}"
        asking = {"SERVER": self.server, "POLICY": self.policy, "FALLBACK": "error"}
        variables = {f"POLICYBRIDGE_{name}": value for name, value in asking.items()}
        deciding = {**self._environment(f" -Wl,--load-pass-plugin={self.plugin}"), **variables}
        package = self.package
        package.once("source", package.fetch)
        package.once(plain, lambda: package.build(plain, self._environment()))
        package.once(decided, lambda: package.build(decided, deciding))
        part = part_of(package.name).value
        return Linked(package.recipe.language, part, package.size(plain), package.size(decided))

    def _environment(self, loading: str = "") -> dict[str, str]:
        flags = f"-Oz -ffunction-sections -flto={self.mode}"
        drivers = {"CC": f"clang-22 {_LINKER}", "CXX": f"clang++-22 {_LINKER}"}
        tools = {name: f"llvm-{name.lower()}-22" for name in ("AR", "NM", "RANLIB")}
        return {"CFLAGS": flags, "CXXFLAGS": flags, "LDFLAGS": f"{flags} {_LINKED}{loading}", **drivers, **tools}


def main(words: Sequence[str] | None = None) -> int:
    """Measure packages and print them; the exit status is 1 if one fails, or 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.packages_lto", description=__doc__)
    add_options(parser)
    parser.add_argument("--lto", choices=MODES, required=True)
    parser.add_argument("--policy", default="size", metavar="NAME")
    asked = parser.parse_args(words)
    plugin = plugin_in(asked.plugins)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(None, Path(folder)) as server:
        bench = partial(Bench, mode=asked.lto, policy=asked.policy, plugin=plugin, server=server.socket)
        return measure_each(asked, lambda package: bench(package).measure(), _told)


def _told(name: str, found: Linked) -> str:
    text, file = (100 * (getattr(found.policy, each) / getattr(found.plain, each) - 1) for each in ("text", "file"))
    sizes = f"text {found.plain.text:,} -> {found.policy.text:,} ({text:+.2f} %), file {file:+.2f} %"
    return f"{name} ({found.language}, {found.part}): {sizes}; its tests passed"


if __name__ == "__main__":
    sys.exit(main())
