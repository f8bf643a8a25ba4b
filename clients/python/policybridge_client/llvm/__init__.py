"""The host of an unmodified LLVM: starts a compiler and answers its observations with advice from the policy server.

Works with LLVM 17 and later: opt, llc, clang and ``zig cc``, whose interactive model runner
(llvm/lib/Analysis/InteractiveModelRunner.cpp) uses a pair of named pipes.
"""

from typing import TYPE_CHECKING

from policybridge_core.lazy import public_names

if TYPE_CHECKING:
    from policybridge_client.llvm.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
