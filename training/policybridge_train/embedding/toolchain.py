"""The compilers of the machine for C and C++."""

import os
import shutil
from typing import Final

from policybridge_core.errors import PreconditionError

_PAIRS: Final = (("cc", "c++"), ("gcc", "g++"), ("clang-22", "clang++-22"), ("clang", "clang++"))


def c_compilers() -> tuple[str, str]:
    """Give those for C and C++: CC and CXX, or the first that are installed.

    Raises:
        PreconditionError: none are.

    """
    for c, cxx in ((os.environ.get("CC", ""), os.environ.get("CXX", "")), *_PAIRS):
        if shutil.which(c) and shutil.which(cxx):
            return c, cxx
    raise PreconditionError("no compilers for C and C++ are installed; install g++, or name them in CC and CXX")
