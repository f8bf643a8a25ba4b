"""The same compiler on every machine."""

from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compiler import Compiler


def same_compiler(name: str, version: str) -> Compiler:
    """Find a compiler by its name or path, on the machine where this is called.

    Raises:
        NotFoundError: there is none.
        PreconditionError: it is of another version.

    """
    compiler = Compiler.find(name)
    if compiler.version != version:
        raise PreconditionError(f"{name} is {compiler.version!r} here, and {version!r} where the run is")
    return compiler
