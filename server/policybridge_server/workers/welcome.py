"""What the parent tells a worker at its start."""

from dataclasses import dataclass

from policybridge_server.config import ServerConfig
from policybridge_server.repository import StoredPolicy


@dataclass(frozen=True)
class Welcome:
    """What a worker needs to know.

    Attributes:
        index: of the worker.
        count: of all.
        config: its own.
        log_level: of the server.
        mark: with which the ids of its sessions end.
        table: descriptor of the table in shared memory.
        sockets: descriptors by address.
        policies: what the repository holds; ``None``: it reads the folders.

    """

    index: int
    count: int
    config: ServerConfig
    log_level: int
    mark: str
    table: int
    sockets: dict[str, int]
    policies: list[StoredPolicy] | None
