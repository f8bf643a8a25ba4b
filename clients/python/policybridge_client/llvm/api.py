"""The public names of the package, which imports them when one of them is asked for."""

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings

__all__ = ["HostConfig", "Report", "Surroundings", "run_compiler"]
