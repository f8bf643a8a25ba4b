"""Which extensions of the protocol a request may use, and how many parameters; over gRPC and HTTP in the same words."""

from collections.abc import Iterable, Sized
from itertools import chain
from typing import Protocol

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import UnsupportedError
from policybridge_server.grpc.error_details import FieldError

_SHARED_MEMORY = "shared_memory_region"
_REFUSED_OUTPUTS = {_SHARED_MEMORY, "classification"}
_MOST_PARAMETERS = 1000
"""Limit for a request and its tensors together; reading more would hold up other clients."""


def check_supported(message: pb.ModelInferRequest) -> None:
    """Check a request without its raw contents.

    Raises:
        UnsupportedError: it needs an extension that this server lacks.
        InvalidError: an input has its contents twice.

    """
    for index, given in enumerate(message.inputs):
        if _SHARED_MEMORY in given.parameters:
            raise UnsupportedError(f"{given.name}: there is no shared memory here; send the contents")
        # Typed contents beside raw ones.
        if given.HasField("contents"):
            raise FieldError(
                f"inputs[{index}].contents", f"{given.name} has `contents` beside `raw_input_contents`; one is right"
            )
    for asked in message.outputs:
        if asked.parameters.keys() & _REFUSED_OUTPUTS:
            raise UnsupportedError(f"{asked.name}: neither shared memory nor classification is offered here")


class _Parameterized(Protocol):
    @property
    def parameters(self) -> Sized: ...


def check_parameters(*parts: Iterable[_Parameterized]) -> None:
    """Check how many parameters the parts of a request have.

    Raises:
        InvalidError: too many.

    """
    count = sum(len(part.parameters) for part in chain(*parts))
    if count > _MOST_PARAMETERS:
        raise FieldError("parameters", f"{count} parameters in one request; at most {_MOST_PARAMETERS} are possible")
