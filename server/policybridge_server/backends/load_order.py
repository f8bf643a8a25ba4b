"""The order in which frameworks are loaded into one process.

TensorFlow and the library of triton, which PyTorch loads where it is installed, each hold a copy of LLVM. If TensorFlow
is loaded first, the options of both copies meet and LLVM aborts the process; in the other order they stay apart
(TensorFlow 2.21, triton 3.9). So triton is loaded as soon as anybody is about to load TensorFlow, a policy included.
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
    """Finds nothing; it prepares for what is loaded next."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == _LATER:
            # Errors alone. What an operator fails at is raised as well, and the probe asks models for what they may
            # refuse.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
            with suppress(ImportError):
                import_module(_FIRST)
        return None


def keep_load_order() -> None:
    """Load the frameworks of this process in an order that works, from now on; a second call does nothing."""
    if not any(isinstance(finder, _Order) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Order())
