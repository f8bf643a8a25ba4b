"""Reverse mode: the compiler is the gRPC server, and a trainer steps it as a Gymnasium environment."""

from policybridge_core.errors import PreconditionError

try:
    import gymnasium  # noqa: F401
except ModuleNotFoundError as error:
    raise PreconditionError(
        "environments need the Python package gymnasium: pip install 'policybridge[gym]'"
    ) from error

from policybridge_client.environment.compiler import Compiler
from policybridge_client.environment.environment import CompilerEnvironment, Transition
from policybridge_client.environment.methods import Method, Reply, load_method

__all__ = ["Compiler", "CompilerEnvironment", "Method", "Reply", "Transition", "load_method"]
