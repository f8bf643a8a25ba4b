"""Instructions that a plugin adds to a compile: ``python -m tests.measures.compile_instructions --work DIR``.

DIR is the folder of ``tests.measures.packages``, which has the stores. A source of each package is compiled by clang-22
at -Oz under valgrind: alone, with the plugin, with plugin and store, and with each ``--embedded`` plugin. Instructions
hardly differ from run to run, as time does on a busy machine. What an earlier call has counted in DIR is not counted
again.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from tests.measures.packages import Recipe, read_recipes

_COUNTED: Final = re.compile(r"^==\d+== I\s+refs:\s+([\d,]+)", re.MULTILINE)


def ways(plugin: Path, store: Path, embedded: Sequence[Path] = ()) -> Mapping[str, Sequence[str]]:
    """Give the further arguments of clang for each way to compile; plugins with a policy inside by their names."""
    loaded = f"-fpass-plugin={plugin}"
    own = {each.stem: (f"-fpass-plugin={each.absolute()}",) for each in embedded}
    return {"plain": (), "plugin": (loaded,), "store": (loaded, "-mllvm", f"-policybridge-decisions={store}"), **own}


def instructions(command: Sequence[str], folder: Path) -> int:
    """Count the instructions of a command, its children's among them.

    Raises:
        PreconditionError: it fails.

    """
    with TemporaryDirectory() as name:
        told = Path(name) / "told"
        words = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        counting = [*words, "--trace-children=yes", f"--log-file={told}-%p"]
        done = subprocess.run([*counting, *command], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PreconditionError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
        logs = [file.read_text(encoding="utf-8") for file in Path(name).iterdir()]
    return sum(int(found.replace(",", "")) for log in logs for found in _COUNTED.findall(log))


def _counted(folder: Path, recipe: Recipe, wanted: Mapping[str, Sequence[str]], store: str) -> dict[str, int]:
    """Give the instructions of each way to compile; those of an earlier call are kept in the package's folder."""
    kept = folder / f"{store}.compiles.json"
    counts = msgspec.json.decode(kept.read_bytes(), type=dict[str, int]) if kept.exists() else {}
    command = ["clang-22", "-Oz", "-o", "/dev/null", *shlex.split(recipe.compile)]
    for way in wanted.keys() - counts.keys():
        counts[way] = instructions([*command, *wanted[way]], folder / "tune")
    kept.write_text(json.dumps(counts), encoding="utf-8")
    return counts


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if a compile fails."""
    recipes = {name: recipe for name, recipe in read_recipes().items() if recipe.compile}
    parser = argparse.ArgumentParser(prog="python -m tests.measures.compile_instructions", description=__doc__)
    parser.add_argument("--package", action="append", choices=[*recipes], help="repeatable (default: all)")
    parser.add_argument("--work", type=Path, default=Path(".cache/measured"), metavar="DIR")
    parser.add_argument("--plugins", type=Path, default=Path(".cache/native/lib"), metavar="DIR")
    parser.add_argument("--budget", type=int, default=16, metavar="N", help="of the store (default: %(default)s)")
    embedded = "of policybridge embed --for plugin-22; repeatable"
    parser.add_argument("--embedded", type=Path, action="append", default=[], metavar="PLUGIN", help=embedded)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args(words)
    plugin, work = (asked.plugins / "policybridge-inliner-22.so").absolute(), asked.work.absolute()
    measured: dict[str, dict[str, int]] = {}
    try:
        for name in asked.package or recipes:
            store = f"tuned-{asked.budget}.db"
            wanted = ways(plugin, work / name / store, asked.embedded)
            its = measured[name] = _counted(work / name, recipes[name], wanted, store)
            factors = ", ".join(f"{way} {its[way] / its['plain']:.4f}" for way in wanted if way != "plain")
            print(f"{name}: {its['plain']:,} plain, {factors}", flush=True)
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    if asked.json:
        asked.json.write_text(json.dumps(measured), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
