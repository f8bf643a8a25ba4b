"""Programs of Debian packages with a policy: ``python -m tests.measures.programs_policy --work DIR``.

``policybridge check`` builds each package of programs.toml twice at -Oz, plain and with a policy of a local server that
the plugin asks, and compares the stripped programs and shared libraries. Packages that an earlier call has checked in
DIR are not checked again.

It needs Debian's packages clang-22 and dpkg-dev, and the headers that the packages of programs.toml build with.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_bench.processes import module
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.checking.command import Checked, Program
from tests.conftest import running_server
from tests.measures.packages import Package, Recipe

RECIPES: Final = Path(__file__).with_name("programs.toml")
_FLAGS: Final = "-Oz"
_LARGER: Final = 1


class Measured(msgspec.Struct, frozen=True):
    """A package and its programs."""

    language: str
    programs: list[Program]


class Built(msgspec.Struct, frozen=True):
    """How a package is built.

    Attributes:
        language: ``c`` or ``c++``.
        build: a shell's command in the package's folder.

    """

    language: str
    build: str


def read_recipes() -> dict[str, Built]:
    """Read programs.toml."""
    return msgspec.convert(tomllib.loads(RECIPES.read_text(encoding="utf-8")), dict[str, Built])


@dataclass(frozen=True)
class Bench:
    """Checks one package after another.

    Attributes:
        work: has a folder of each package.
        plugins: the folder of the plugin.
        policy: decides.
        server: the address of the server that has the policy.
        jobs: of each build.

    """

    work: Path
    plugins: Path
    policy: str
    server: str
    jobs: int

    def measure(self, name: str, built: Built) -> Measured:
        """Check a package, unless an earlier call has.

        Raises:
            PreconditionError: a build fails; the message has its last lines.

        """
        package = Package(name, Recipe(built.language, "", built.build, [], ""), self.work)
        package.once("source", package.fetch)
        told = package.folder / f"{self.policy}.json"
        package.once(f"checked-{self.policy}", lambda: self._check(package, told))
        checked = msgspec.json.decode(told.read_bytes(), type=Checked)
        # A build may copy a program, to install it.
        apart = {(Path(each.name).name, each.before, each.after): each for each in checked.programs}
        return Measured(built.language, [*apart.values()])

    def _check(self, package: Package, told: Path) -> None:
        asking = ["--policy", self.policy, "--server", self.server, "--plugins", self.plugins, "--compiler", "clang-22"]
        places = ["--source", package.folder / "source", "--work", package.folder / "check"]
        build = ["bash", "-ec", package.recipe.build]
        flags = {"CFLAGS": _FLAGS, "CXXFLAGS": _FLAGS, "JOBS": str(self.jobs)}
        done = subprocess.run(
            module("policybridge_client.cli", "check", *asking, *places, "--json", "--", *build),
            env={**os.environ, **flags},
            capture_output=True,
            check=False,
        )
        if done.returncode not in (0, _LARGER):
            raise PreconditionError(done.stderr.decode(errors="replace").strip())
        told.write_bytes(done.stdout)


def main(words: Sequence[str] | None = None) -> int:
    """Check packages, and print the changes of text; the exit status is 1 if one fails, or 2 for wrong arguments."""
    recipes = read_recipes()
    parser = argparse.ArgumentParser(prog="python -m tests.measures.programs_policy", description=__doc__)
    parser.add_argument("--package", action="append", choices=[*recipes], help="repeatable (default: all)")
    parser.add_argument("--policy", default="size", metavar="NAME")
    parser.add_argument("--work", type=Path, default=Path(".cache/programs"), metavar="DIR")
    parser.add_argument("--plugins", type=Path, default=Path(".cache/native/lib"), metavar="DIR")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args(words)
    measured, failed = {}, False
    with TemporaryDirectory(prefix="pb-") as folder, running_server(None, Path(folder)) as server:
        bench = Bench(asked.work.absolute(), asked.plugins.absolute(), asked.policy, server.socket, asked.jobs)
        for name in asked.package or recipes:
            try:
                measured[name] = bench.measure(name, recipes[name])
            except PolicyBridgeError as error:
                failed = True
                sys.stderr.write(f"{name}: {error}\n")
                continue
            print(_told(name, measured[name]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(msgspec.to_builtins(measured)), encoding="utf-8")
    return int(failed)


def _told(name: str, found: Measured) -> str:
    changes = {each.name: each.after.text / each.before.text - 1 for each in found.programs}
    worst = max(changes, key=changes.__getitem__)
    larger = sum(change > 0 for change in changes.values())
    return (
        f"{name}: {len(changes)} programs, {larger} larger by text; the worst is {worst}, {100 * changes[worst]:+.2f} %"
    )


if __name__ == "__main__":
    sys.exit(main())
