"""A policy's C as a program of its own, under sanitizers: observations on standard input, advice on standard output."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_serdes import Layout, PolicyVersion, Values
from policybridge_server.backends.contract import Batch, SessionView
from policybridge_server.backends.onnx.backend import OnnxBackend
from policybridge_train.embedding.c_files import write_header, write_source
from policybridge_train.embedding.interface import Embedded
from tests.native.conftest import missing

STRICT: Final = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED: Final = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_MAIN: Final = """
#include "policy.h"
#include <stdio.h>
int main(void) {
  struct p_observation o;
  while (fread(&o, sizeof o, 1, stdin) == 1) {
    struct p_advice a = {{0}};
    unsigned char status = (unsigned char)p_decide(&o, &a);
    fwrite(&a, sizeof a, 1, stdout);
    fwrite(&status, 1, 1, stdout);
  }
  return 0;
}
"""


def needs_compiler(name: str) -> None:
    """Skip the test where the compiler is missing."""
    if shutil.which(name) is None:
        missing(name)


def build(policy: Embedded, folder: Path, compiler: str, flags: Sequence[str] = SANITIZED, main: str = _MAIN) -> Path:
    """Compile the policy without a warning, and a ``main`` in C that decides by it; give the program."""
    (folder / "main.c").write_text(main)
    compile_c(policy, folder, [compiler, *flags, "main.c", "-o", "program"])
    return folder / "program"


def compile_c(policy: Embedded, folder: Path, command: Sequence[str]) -> None:
    """Add the policy's C, whose names begin with p, to a compiler's command; there is no warning."""
    (folder / "policy.h").write_text(write_header(policy, "p"))
    (folder / "policy.c").write_text(write_source(policy, "p", "policy.h"))
    done = subprocess.run([*command, *STRICT, "policy.c"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def decide(program: Path, policy: Embedded, observations: Values) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Run the program: advice [n, elements] and statuses [n]."""
    done = subprocess.run([program], input=observations.tobytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    element = policy.advice.type.dtype
    record = np.dtype([("advice", element, (max(policy.advice.count, 1),)), ("status", np.uint8)])
    rows = np.frombuffer(done.stdout, record)
    return rows["advice"], rows["status"]


def record_of(policy: Embedded) -> np.dtype[Any]:
    """Give numpy's type of the C observation."""
    specs = [each.spec for each in policy.members]
    return np.dtype([(each.name, each.type.dtype, (max(each.count, 1),)) for each in specs], align=True)


def by_onnx_runtime(policy: Embedded, observations: Values) -> npt.NDArray[Any]:
    """Give what the model gives in ONNX Runtime, shape [n, elements]."""
    model = OnnxBackend().load(policy.version.folder, policy.version.config)
    features, advice = model.signature.features, model.signature.advice
    assert features is not None
    assert advice is not None
    values = np.zeros(len(observations), features.dtype)
    for spec in features.specs:
        values[spec.name] = observations[spec.name].reshape(values[spec.name].shape)
    sessions = [SessionView("test", PolicyVersion("", 0, ""))] * len(values)
    return model.evaluate(Batch(values, sessions, Layout((advice,))))[advice.name].reshape(len(values), -1)


def random_observations(policy: Embedded, count: int, seed: int) -> Values:
    """Make observations of small whole numbers."""
    random = np.random.default_rng(seed)
    made = np.zeros(count, record_of(policy))
    for name in made.dtype.names or ():
        made[name] = random.integers(-4, 5, made[name].shape)
    return made
