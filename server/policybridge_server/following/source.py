"""The contract of a source of policies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from policybridge_serdes import PolicyVersion
from policybridge_server.following.state import Lack, PolicyState
from policybridge_server.repository.staging import Staging


@dataclass(frozen=True)
class SourceChange:
    """Changed policies, in their present state.

    Attributes:
        policies: all of them in the first change.
        revision: of the source; it grows.

    """

    policies: Sequence[PolicyState]
    revision: int = 0


class Source(Protocol):
    """A source of policies. All methods except `close` block; they are called in threads.

    Attributes:
        name: text for people, such as ``the leader grpc:HOST:PORT``.
        polled: whether it is read periodically, and changed by this server too. Then it yields a policy again
            whose missing parts may exist at the next try.

    """

    name: str
    polled: bool

    def changes(self) -> Iterator[SourceChange]:
        """Give the policies, then each change, until `close`. After an error it is called again.

        Raises:
            PolicyBridgeError: the source cannot be reached, or is not a source.

        """
        ...

    def fetch(self, policy: str, number: int, digest: str, staging: Staging) -> None:
        """Write the files of a version.

        Raises:
            PolicyBridgeError: they cannot be had now.

        """
        ...

    def adopted(self, revision: int, lacks: Sequence[Lack], kept: Sequence[tuple[PolicyVersion, str]]) -> None:
        """Take the news that this server serves the change without ``lacks``, and keeps versions with their epochs."""
        ...

    def close(self) -> None:
        """End `changes`; from any thread."""
        ...
