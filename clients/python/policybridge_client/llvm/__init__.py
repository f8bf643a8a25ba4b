"""The host of an unmodified LLVM: starts a compiler and answers its observations with advice from the policy server.

Works with LLVM 17 and later: opt, llc, clang and ``zig cc``, whose interactive model runner
(llvm/lib/Analysis/InteractiveModelRunner.cpp) uses a pair of named pipes.
"""

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings

__all__ = ["HostConfig", "Report", "Surroundings", "run_compiler"]
