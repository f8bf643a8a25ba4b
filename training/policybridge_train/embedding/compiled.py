"""The policy's C in this process, by a C compiler of the machine."""

import ctypes
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_serdes import Values
from policybridge_train.embedding.c_files import write_header, write_source
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.toolchain import Toolchain

_LOOP: Final = """
#include "policy.h"
void decide_all(const struct p_observation *o, struct p_advice *a, unsigned char *status, size_t count);
void decide_all(const struct p_observation *o, struct p_advice *a, unsigned char *status, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) status[i] = (unsigned char)p_decide(&o[i], &a[i]);
}
"""


class CompiledPolicy:
    """A policy as C, compiled and loaded.

    Attributes:
        observations: the record of its observation, by the features' names.

    Args:
        policy: to compile.
        toolchain: the compilers; the first ones found by default.

    Raises:
        PreconditionError: there is no C compiler, or it fails.
        UnsupportedError: an operator has no form in C.

    """

    def __init__(self, policy: Embedded, toolchain: Toolchain | None = None) -> None:
        members = [each.spec for each in policy.members]
        self.observations: np.dtype[Any] = np.dtype(
            [(spec.name, _plain(spec.type.dtype), (max(spec.count, 1),)) for spec in members], align=True
        )
        self._advice = np.dtype((_plain(policy.advice.type.dtype), (max(policy.advice.count, 1),)))
        with tempfile.TemporaryDirectory(prefix="pb-embed-") as folder:
            self._decide = _loaded(policy, Path(folder), toolchain or Toolchain.find())

    def decide(self, observations: Values) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
        """Give the advice of each record, shape [n, elements], and its status; 0: there is advice."""
        given = np.ascontiguousarray(observations, self.observations)
        advice = np.zeros(len(given), self._advice)
        status = np.zeros(len(given), np.uint8)
        self._decide(given.ctypes.data, advice.ctypes.data, status.ctypes.data, len(given))
        return advice, status


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def _loaded(policy: Embedded, folder: Path, toolchain: Toolchain) -> Any:
    (folder / "policy.h").write_text(write_header(policy, "p"))
    (folder / "policy.c").write_text(write_source(policy, "p", "policy.h"))
    (folder / "loop.c").write_text(_LOOP)
    toolchain.compile_c(["-fvisibility=default", "-shared", "policy.c", "loop.c", "-o", "policy.so"], folder)
    function = ctypes.CDLL(str(folder / "policy.so")).decide_all
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t]
    function.restype = None
    return function
