"""Which changes of the repository the operator lets clients make."""

from collections.abc import Sequence

from policybridge_core.errors import PreconditionError
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.repository import StoredPolicy
from policybridge_server.repository.checks import check_alias


class Permission:
    """Refuses changes that the operator does not allow. For the loop thread.

    Args:
        opener: opens the sessions that get the versions.
        allowed: whether the operator lets clients publish.
        leader: the address of the leader, which takes the changes, if this server is a replica.

    Attributes:
        allowed: likewise.
        leader: likewise.

    """

    def __init__(self, opener: SessionOpener, *, allowed: bool, leader: str | None) -> None:
        self.allowed = allowed
        self.leader = leader
        self._opener = opener
        self._repository = opener.engine.repository

    def check(self, aliases: Sequence[str] = ()) -> None:
        """Check that clients may change the repository, and that an alias may have each of these names.

        Raises:
            UnavailableError: the server shuts down.
            PreconditionError: the operator does not allow it.
            InvalidError: a name is not allowed.

        """
        self._opener.check_open()
        if self.leader is not None:
            raise PreconditionError(f"this server is a replica and takes no changes; its leader does: {self.leader}")
        if not self.allowed:
            raise PreconditionError("this server takes no changes; its operator allows them with --allow-publish")
        for alias in aliases:
            check_alias(alias)

    def writable(self, name: str) -> StoredPolicy:
        """Give a policy that may be changed.

        Raises:
            NotFoundError: there is no such policy.
            PreconditionError: it is a bundled policy.

        """
        policy = self._repository.policy(name)
        if policy.folder.parent not in self._repository.writable:
            raise PreconditionError(f"policy {name!r} is a part of the package; publish under another name")
        return policy
