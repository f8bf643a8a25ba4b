"""GCC with the plugin that asks about loops, the sources that it compiles, and the policies that decide."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnx import helper

from policybridge_demo.corpus import library_root
from tests.native.conftest import GCC, Target, missing
from tests.native.llvm.plugins import need
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, dying, sleeping, write_python

ECHO = 'observation["unrolling_default"]'

_LARGEST = """
class Policy:
    def evaluate(self, observation, session):
        return max(copies for copies, legal in enumerate(observation["mask"]) if legal)
"""

_SCORES = """
import numpy as np


class Policy:
    def evaluate(self, observation, session):
        return np.zeros(17, np.float32)
"""

_HEAD = """
    advice = {name = "scores", type = "float", shape = [17]}

    [head]
    mask = "mask"
    advice = "unrolling"
"""

LOOPS = """
double dot(const double *a, const double *b, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}
unsigned hash(const unsigned char *p, unsigned n) {
  unsigned h = 5381;
  while (n--)
    h = h * 33 ^ *p++;
  return h;
}
int last(const int *a, int key) {
  int i = 0;
  while (a[i] != key)
    i++;
  return i;
}
unsigned table[100];
void fill(unsigned seed) {
  for (int i = 0; i < 100; i++)
    table[i] = seed = seed * 1664525u + 1013904223u;
}
void matrix(const double *a, double *b, long n) {
  for (long i = 0; i < n; i++)
    for (long j = 0; j < n; j++)
      b[i] += a[i * n + j] / b[j];
}
"""
"""Five loops that GCC asks about at -O2: of three kinds by what is known of their iterations."""

MAIN = """
#include <stdio.h>
int main(void) {
  double a[64], b[64];
  int keys[64];
  for (int i = 0; i < 64; i++)
    a[i] = i * 0.5, b[i] = 64 - i, keys[i] = i;
  for (int n = 0; n < 40; n++)
    printf("%g %u %d\\n", dot(a, b, n), hash((const unsigned char *)a, n), last(keys, n));
  for (unsigned seed = 0; seed < 9; seed++)
    fill(seed), printf("%u\\n", table[99 - seed]);
  matrix(a, b, 8);
  for (int i = 0; i < 8; i++)
    printf("%.17g\\n", b[i]);
}
"""

_MUSL = """
    -std=c99 -nostdinc -ffreestanding -fno-strict-aliasing -frounding-math -D_XOPEN_SOURCE=700 -Ilibc/musl/arch/x86_64
    -Ilibc/musl/arch/generic -Ilibc/musl/src/include -Ilibc/musl/src/internal -Ilibc/musl/include
    -Ilibc/include/x86_64-linux-musl -Ilibc/include/generic-musl
"""
_TSAN = "-std=c++17 -fno-exceptions -fno-rtti -fno-builtin -Ilibtsan"
REAL = {
    "libc/musl/src/regex/regcomp.c": _MUSL,
    "libc/musl/src/regex/regexec.c": _MUSL,
    "libc/musl/src/stdio/vfprintf.c": _MUSL,
    "libc/musl/src/math/__rem_pio2_large.c": _MUSL,
    "libc/musl/src/crypt/crypt_sha256.c": _MUSL,
    "libtsan/tsan_rtl.cpp": _TSAN,
}
"""Sources that come with the package ziglang, and the options with which GCC compiles them in its folder `lib`."""


def write_policies(repository: Path) -> None:
    write_python(repository, "echo", answering(ECHO))
    write_onnx(repository, "given", _given())
    write_python(repository, "own", answering("0"))
    write_python(repository, "never", answering("1"))
    write_python(repository, "four", answering('4 if observation["line"] == 4 else 0'))
    write_python(repository, "largest", _LARGEST)
    write_python(repository, "masked", answering("3"))
    write_python(repository, "huge", answering("1 << 40"))
    write_python(repository, "negative", answering("-1"))
    write_python(repository, "failing", answering("observation['no such feature']"))
    write_python(repository, "dying", dying(ECHO, after=3))
    write_python(repository, "sleeping", sleeping("0", after=2))
    write_python(repository, "scores", _SCORES, _HEAD)


def _given() -> onnx.ModelProto:
    """Repeat GCC's own decision, in a form that compilers evaluate."""
    node = helper.make_node("Identity", ["unrolling_default"], ["unrolling"])
    kind: tuple[int, list[int | str]] = (onnx.TensorProto.INT64, [1])
    return make_model([node], {"unrolling_default": kind}, {"unrolling": kind})


def write_loops(folder: Path, name: str = "loops.c", text: str = LOOPS) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation: its status, the file made, and what was said on standard error."""

    status: int
    made: bytes
    said: str

    def unrolled(self) -> Counter[tuple[int, int]]:
        """Count the loops that GCC says it unrolled (-fopt-info-loop-optimized): line, and copies of the body."""
        said = re.findall(r":(\d+):\d+: optimized: loop unrolled (\d+) times", self.said)
        return Counter((int(line), int(times) + 1) for line, times in said)


@dataclass(frozen=True)
class Gcc:
    """Stock GCC with the plugin.

    Attributes:
        path: the plugin.
        server: the address of the server that it asks.

    """

    path: Path
    server: str

    @classmethod
    def of(cls, native: Target, server: str) -> "Gcc":
        if not Path(plugin_folder(), "include", "gcc-plugin.h").is_file():
            missing(f"gcc-{GCC}-plugin-dev")
        target = f"policybridge_unroll_gcc{GCC}"
        return cls(native(target) / "lib" / f"{target}.so", server)

    def environment(self, policy: str, **settings: str) -> dict[str, str]:
        """Give the environment with which ``policy`` decides; ``stats="x"`` is POLICYBRIDGE_STATS."""
        named = {"server": self.server, "policy": policy, **settings}
        return {**os.environ, **{f"POLICYBRIDGE_{name.upper()}": value for name, value in named.items()}}

    def compile(self, source: Path | str, policy: str, *flags: str, **settings: str) -> Compiled:
        """Compile with the plugin; ``-S`` among the flags gives assembly."""
        loading = [f"-fplugin={self.path}", *flags]
        return _compile(source, loading, self.environment(policy, **settings))

    @staticmethod
    def plain(source: Path | str, *flags: str) -> bytes:
        """Compile without it."""
        done = _compile(source, flags, {**os.environ})
        assert done.status == 0, done.said
        return done.made

    def argument(self, name: str, value: str) -> str:
        """Give a setting as the command line has it."""
        return f"-fplugin-arg-{self.path.stem}-{name}={value}"


def plugin_folder() -> str:
    words = [need(f"gcc-{GCC}"), "-print-file-name=plugin"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _compile(source: Path | str, flags: Sequence[str], environment: Mapping[str, str]) -> Compiled:
    driver = need(f"gcc-{GCC}" if str(source).endswith(".c") else f"g++-{GCC}")
    level = [] if any(flag.startswith("-O") for flag in flags) else ["-O2"]
    kind = [] if "-S" in flags else ["-c"]
    with TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        words = [driver, "-w", *level, *REAL.get(str(source), "").split(), *kind, *flags, str(source), "-o", str(made)]
        done = subprocess.run(words, cwd=library_root(), env=environment, capture_output=True, check=False)
        content = made.read_bytes() if made.exists() else b""
    return Compiled(done.returncode, content, done.stderr.decode(errors="replace"))
