"""The order in which frameworks are loaded into one process.

TensorFlow and the library of triton, which PyTorch loads if it is installed, each have a copy of LLVM. If TensorFlow
is loaded first, the options of both copies collide and LLVM aborts the process; in the other order they do not
(TensorFlow 2.21, triton 3.9). So triton is loaded before any import of TensorFlow, also by a policy.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_LATER: Final = "tensorflow"
_FIRST: Final = "triton._C.libtriton"


class _Order(MetaPathFinder):
    """Finds no module; loads triton before TensorFlow."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == _LATER:
            # Log only errors: an operator's failure is raised as well, and the probe sends models inputs that they may
            # refuse.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
            with suppress(ImportError):
                import_module(_FIRST)
        return None


def keep_load_order() -> None:
    """Load the frameworks of this process in an order that works, from now on; a second call does nothing."""
    if not any(isinstance(finder, _Order) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Order())
