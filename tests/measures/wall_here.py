"""Time compiles of real C files that the policy decides in the compiler, beside plain ones and the advisor alone.

    python -m tests.measures.wall_here --work DIR [--rounds N] [--json FILE]

The files are all of Debian's package lua5.4, which is fetched into DIR, and the largest of musl in the wheel ziglang,
100 together, at -Oz. clang-22 compiles each by turns: plain; by a plugin with the policy that repeats LLVM's own
decision (`policybridge embed`), which asks nobody, so that what it takes is LLVM's `MLInlineAdvisor` and its features;
and by the plugin with the policy `inliner`, decided in the compiler (``-policybridge-evaluate=here``), with a server
with a ledger on this machine's socket. A file's time is the least of its rounds, and so is its processor time. Prints
the sums in seconds, and how much more they are than plain.

Needs Debian's clang-22, dpkg-dev, cmake, ninja, g++ and LLVM's headers.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import onnx
from onnx import helper

from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from policybridge_train.corpus.debian.apt import Apt
from tests.conftest import command, running_server
from tests.native.conftest import BUILD, built
from tests.native.llvm.plugins import built_plugin
from tests.onnx_models import make_model, write_onnx
from tests.server.ledger.asking import await_forms

FILES: Final = 100
_INT64: Final = onnx.TensorProto.INT64

Compile = tuple[Sequence[str], Path]
"""A command, and the folder to run it in."""


def main() -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    work = arguments.work.absolute()
    compiles = [*_lua(work), *_musl(work)][:FILES]
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        ways = {"plain": [], "advisor": [_echo(folder)], "policy": [built_plugin(built, "inliner", "22")]}
        with running_server(None, folder, "--ledger", folder / "ledger.db") as server:
            await_forms(server.socket, "inliner")
            settings = {"SERVER": server.socket, "POLICY": "inliner", "EVALUATE": "here", "FALLBACK": "error"}
            changed = {f"POLICYBRIDGE_{key}": value for key, value in settings.items()}
            environment = {**os.environ, "XDG_CACHE_HOME": name, **changed}
            figures = _measured(compiles, ways, environment, arguments.rounds)
    print(json.dumps(figures, indent=2))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def _lua(work: Path) -> list[Compile]:
    """Fetch the package; give its compiles."""
    folder = work / "lua"
    if not folder.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        package = Apt.prepare(work / "apt").download("lua5.4", work)
        subprocess.run(["dpkg-source", "-x", package, folder], check=True, stdout=subprocess.DEVNULL)
    # Debian's build writes it.
    (folder / "src" / "lua5.4-deb-multiarch.h").write_text('#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n')
    words = ["clang-22", "-Oz", "-w", "-DLUA_USE_POSIX", "-c", "-o", str(work / "o")]
    return [([*words, str(file)], folder) for file in sorted((folder / "src").glob("*.c"))]


def _musl(work: Path) -> list[Compile]:
    root = library_root()
    files = sorted((root / "libc/musl/src").rglob("*.c"), key=lambda file: (-file.stat().st_size, file))
    portable = [file for file in files if not {"linux", "math", "complex"} & set(file.parts)]
    modules = [Module(str(file.relative_to(root))) for file in portable]
    return [(COMPILERS["clang-22"](module, work / "o"), root) for module in modules]


def _echo(folder: Path) -> Path:
    """Make a plugin whose policy repeats LLVM's own decision."""
    spec: dict[str, tuple[int, list[int | str]]] = {"inlining_default": (_INT64, [1])}
    repeating = helper.make_node("Identity", ["inlining_default"], ["inlining_decision"])
    write_onnx(folder / "policies", "echo", make_model([repeating], spec, {"inlining_decision": (_INT64, [1])}))
    plugin = folder / "echo.so"
    words = ["embed", "echo", "--repository", folder / "policies", "--for", "plugin-22", "-o", plugin]
    subprocess.run(command(*words, "--build", BUILD.with_name("native-echo")), check=True, stdout=sys.stderr)
    return plugin


def _measured(
    compiles: Sequence[Compile], ways: Mapping[str, list[Path]], environment: Mapping[str, str], rounds: int
) -> dict[str, float]:
    usable = [each for each in compiles if _seconds(each, [], environment) is not None]
    sums = {way: np.zeros(2) for way in ways}
    for each in usable:
        best = {way: np.full(2, np.inf) for way in ways}
        for _ in range(rounds):
            for way, plugins in ways.items():
                seconds = _seconds(each, plugins, environment)
                assert seconds is not None, each
                best[way] = np.minimum(best[way], seconds)
        for way, least in best.items():
            sums[way] += least
    figures: dict[str, float] = {"files": len(usable)}
    for way, (wall, processor) in sums.items():
        figures |= {f"{way}.seconds": round(wall, 3), f"{way}.processor": round(processor, 3)}
        if way != "plain":
            factor, processor_factor = (sums[way] / sums["plain"]).round(4)
            figures |= {f"{way}.factor": factor, f"{way}.processor_factor": processor_factor}
    return figures


def _seconds(each: Compile, plugins: Sequence[Path], environment: Mapping[str, str]) -> tuple[float, float] | None:
    """Compile; give the wall and processor time, ``None`` if the compiler fails."""
    words, folder = each
    before, begun = _processor(), time.monotonic()
    loading = [f"-fpass-plugin={plugin}" for plugin in plugins]
    done = subprocess.run([*words, *loading], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and plugins:
        sys.stderr.write(done.stderr)
    took = time.monotonic() - begun, _processor() - before
    return took if done.returncode == 0 else None


def _processor() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
