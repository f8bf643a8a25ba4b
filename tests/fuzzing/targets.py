"""The table of the targets."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Final

from tests.fuzzing import clients, connections, decoders, networks
from tests.fuzzing.inputs import Target

_DECODERS: Final[tuple[Callable[[bytes], None], ...]] = (
    decoders.bitstream,
    decoders.json,
    decoders.protobuf,
    decoders.interactive,
    decoders.specs,
    decoders.training_log,
    decoders.hello,
    decoders.hpack,
    decoders.forms,
    decoders.infer_json,
    decoders.infer,
    decoders.pipe_frames,
    decoders.pipe_json,
    decoders.pipe_bytes,
    decoders.ledger_column,
    decoders.policy_toml,
    decoders.weights,
    decoders.policy_form,
    decoders.torch_program,
    decoders.torch_script,
    clients.llvm_host,
    networks.embedded,
)
_CONNECTIONS: Final = (
    connections.grpc_frames,
    connections.socket_bytes,
    connections.http_bytes,
    connections.mlbridge_calls,
    clients.client_socket,
    clients.client_pipe,
    clients.client_grpc,
)


def _alone(target: Target) -> AbstractContextManager[Target]:
    return nullcontext(target)


TARGETS: Final[Mapping[str, Callable[[], AbstractContextManager[Target]]]] = MappingProxyType(
    {target.__name__: partial(_alone, target) for target in _DECODERS}
    | {target.__name__: target for target in _CONNECTIONS}
)
"""By name, what starts a target. A body with a server stops it at its end."""
