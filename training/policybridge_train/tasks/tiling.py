"""Tiling of linalg operations by mlir-opt, whose cost is the cache misses of the program that comes of it.

The plugin ``policybridge-mlir`` asks for the tile of each loop (docs/mlir.md). The tiled module is lowered to LLVM,
compiled, linked with a small program and run by cachegrind, whose cache is always the same.
"""

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_client.llvm.plugins import plugin_folders
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_train.compiling.compilation import sessions_of
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.result import CompileResult
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.tasks.cachegrind import Misses, count_misses
from policybridge_train.tasks.callgrind import find_valgrind
from policybridge_train.tasks.nests import Nest, nests
from policybridge_train.tasks.task import Asking, Case

SIZES: Final = (0, 4, 8, 16, 32, 64, 128)
"""The sizes among which the policy chooses; 0 does not tile."""

_LOOPS, _OPERANDS = 8, 4
_LOWERING: Final = (
    "convert-linalg-to-loops",
    *("expand-strided-metadata", "lower-affine", "convert-scf-to-cf", "canonicalize", "cse"),
    *("convert-to-llvm", "reconcile-unrealized-casts"),
)


class Tiling:
    """Tiles of matrix products and convolutions; a case is one of them, and so is a unit.

    The cost of an operation is the logarithm, to base 2, of 1 + its misses.

    Args:
        nests: how many shapes there are.
        usual: the compiler's own tile: a size for each loop, with commas; the last one is for all further loops.
        major: of MLIR and clang.
        plugins: the folder of the plugin; by default where it is installed, or POLICYBRIDGE_PLUGINS says.
        seconds: limit of each command.

    Raises:
        NotFoundError: a program or the plugin is missing.
        InvalidError: an option is none.

    """

    name = "tile"
    features = (
        *(TensorSpec(name, ElementType.INT64) for name in ("kind", "element_bits", "loops", "loop", "extent")),
        *(TensorSpec(name, ElementType.INT64) for name in ("parallel", "default")),
        *(TensorSpec(name, ElementType.INT64, (_OPERANDS,)) for name in ("stride", "operand_bytes", "tile_bytes")),
        *(TensorSpec(name, ElementType.INT64, (_LOOPS,)) for name in ("extents", "parallels", "tiles")),
        TensorSpec("strides", ElementType.INT64, (_OPERANDS * _LOOPS,)),
    )
    advice = TensorSpec("tile", ElementType.INT64)
    choices = len(SIZES)
    default = "default"

    def __init__(
        self, nests: str = "240", usual: str = "32", major: str = "22", plugins: str = "", seconds: str = "60"
    ) -> None:
        self._tools = [_found(name, major) for name in ("mlir-opt", "mlir-translate", "clang")]
        find_valgrind()
        folders = plugin_folders(Path(plugins) if plugins else None)
        files = ((folder / f"policybridge-mlir-{major}.so").absolute() for folder in folders)
        plugin = next((file for file in files if file.exists()), None)
        if plugin is None:
            raise NotFoundError(
                lacking(
                    f"there is no policybridge-mlir-{major}.so; give its folder by --plugins, or in "
                    "POLICYBRIDGE_PLUGINS (docs/mlir.md)"
                )
            )
        self._plugin = plugin
        self._usual = usual
        try:
            self._count = int(nests)
        except ValueError as error:
            raise InvalidError(f"nests={nests} is no number") from error
        self._limits = Limits.read(seconds)
        self._running = Running()
        self._nests: dict[str, Nest] = {}
        self._known: dict[str, Misses] = {}

    def cases(self, corpus: Path | None) -> Sequence[Case]:  # noqa: ARG002 - of `Task`
        """Give the shapes; see `Task`. Each is a project of its own, so that a hash of the shape holds it out."""
        self._nests = {nest.name: nest for nest in nests(self._count)}
        return [Case(name, name) for name in self._nests]

    def run(self, case: Case, asking: Asking | None) -> CompileResult:
        """Tile, lower, compile and run; see `Task`. Without ``asking`` the tile is the usual one."""
        if case.name not in self._nests:
            raise NotFoundError(f"there is no shape {case.name!r} among the {len(self._nests)} that were drawn")
        nest = self._nests[case.name]
        try:
            with TemporaryDirectory(prefix="policybridge-train-") as name:
                folder = Path(name)
                self.lower(nest, folder, asking, case.name)
                return _ran(nest, self._misses(nest, folder), sessions_of(folder / "statistics"))
        except (PolicyBridgeError, OSError) as error:
            return CompileResult.failed(str(error))

    def _misses(self, nest: Nest, folder: Path) -> Misses:
        # The same code has the same misses. Most versions tile most operations as an earlier one did.
        lowered = (folder / "lowered.mlir").read_text()
        if lowered not in self._known:
            self.link(nest, folder)
            self._known[lowered] = count_misses(folder / "program", "nest", folder, self._limits, self._running)
        return self._known[lowered]

    def lower(self, nest: Nest, folder: Path, asking: Asking | None, name: str = "") -> None:
        """Make ``lowered.mlir`` in a folder; ``name`` is mixed into the seed of an exploration.

        Raises:
            PreconditionError: a command fails.

        """
        (folder / "nest.mlir").write_text(nest.to_mlir())
        optimise = self._tools[0]
        tile = f"policybridge-tile{{sizes={','.join(map(str, SIZES))} default={self._usual}}}"
        passes = f"builtin.module({','.join([tile, *_LOWERING])})"
        asks = [f"--load-pass-plugin={self._plugin}", f"--pass-pipeline={passes}"]
        self._do([optimise, *asks, "nest.mlir", "-o", "lowered.mlir"], folder, _environment(asking, name))

    def link(self, nest: Nest, folder: Path) -> None:
        """Make ``program`` of the folder's ``lowered.mlir``.

        Raises:
            PreconditionError: a command fails.

        """
        (folder / "main.c").write_text(nest.to_c())
        _, translate, compile_ = self._tools
        self._do([translate, "--mlir-to-llvmir", "lowered.mlir", "-o", "nest.ll"], folder)
        self._do([compile_, "-O2", "-Wno-override-module", "nest.ll", "main.c", "-o", "program"], folder)

    def end(self) -> None:
        """End all compilers; see `Task`."""
        self._running.end()

    def units(self, observations: Values, contexts: npt.NDArray[np.object_]) -> Sequence[str]:  # noqa: ARG002
        """Give the operation of each decision: the context is its site."""
        return [str(context) for context in contexts]

    def _do(self, command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
        done = compile_by(command, self._limits, environment, folder, running=self._running)
        if not done.ok:
            raise PreconditionError(f"{Path(command[0]).name}: {done.status.value}: {done.message}")


def _found(tool: str, major: str) -> str:
    path = shutil.which(f"{tool}-{major}")
    if path is None:
        raise NotFoundError(f"there is no {tool}-{major} on PATH; apt-get install mlir-{major}-tools clang-{major}")
    return path


def _environment(asking: Asking | None, name: str) -> dict[str, str]:
    """Give the variables: the user's own settings of the plugin do not count."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("POLICYBRIDGE_")}
    if asking is None:
        return plain
    settings = {
        "SERVER": asking.server,
        "POLICY": asking.policy,
        "FALLBACK": "error",
        "RETRY_AFTER": "0",
        "STATS": "statistics",
        "LABELS": ",".join(f"{key}={value}" for key, value in asking.labels.items()),
    }
    if asking.exploration is not None:
        explored = vars(asking.exploration.of_module(name))
        settings["EXPLORE"] = ",".join(f"{key}={value}" for key, value in explored.items())
    return plain | {f"POLICYBRIDGE_{key}": value for key, value in settings.items()}


def _ran(nest: Nest, misses: Misses, sessions: Sequence[str]) -> CompileResult:
    operation = "linalg.matmul" if nest.kind == "matmul" else "linalg.conv_2d_nhwc_hwcf"
    cost = math.log2(1 + misses.data)
    totals = {"misses_log2": cost, "misses": float(misses.data), "instructions": float(misses.instructions)}
    return CompileResult({f"nest/{operation}/0": cost}, sessions, totals)
