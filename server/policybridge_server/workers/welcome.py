"""The parent's first message to a worker."""

from dataclasses import dataclass

from policybridge_server.config import ServerConfig
from policybridge_server.repository import StoredPolicy


@dataclass(frozen=True)
class Welcome:
    """The data for a worker's start.

    Attributes:
        index: the worker's number.
        count: the number of workers.
        config: the worker's configuration.
        log_level: the server's log level.
        mark: the end of its sessions' ids.
        table: descriptor of the table in shared memory.
        sockets: descriptors by address.
        policies: the repository's policies; ``None``: it reads the folders.

    """

    index: int
    count: int
    config: ServerConfig
    log_level: int
    mark: str
    table: int
    sockets: dict[str, int]
    policies: list[StoredPolicy] | None
