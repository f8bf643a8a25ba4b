"""When each server has let new sessions get each version: they are followed as replicas follow a leader."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from policybridge.v1 import replication_service_pb2 as pb
from policybridge_client.leader import LeaderLink
from policybridge_core.errors import PolicyBridgeError
from tests.replicas.asking import POLICY


class Watch:
    """Follows servers, and notes at which moment each says first that it has a version.

    Args:
        addresses: of the servers.

    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._seen: list[dict[int, float]] = [{} for _ in addresses]
        self._links = [LeaderLink(address) for address in addresses]
        self._ended = False
        self._threads = [
            threading.Thread(target=self._follow, args=each, daemon=True)
            for each in zip(self._links, self._seen, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, link: LeaderLink, seen: dict[int, float]) -> None:
        while not self._ended:
            with suppress(PolicyBridgeError):
                for response in link.follow(pb.Hello(id="watch", name="watch")):
                    now = time.monotonic()
                    for policy in response.policies:
                        if policy.policy == POLICY:
                            seen |= {each.version: seen.get(each.version, now) for each in policy.versions}
                    link.adopted(pb.Adopted(revision=response.revision))
            time.sleep(0.05)

    def lags(self) -> list[float]:
        """Give by how many seconds each version came later to each other server than to the first; infinite: never."""
        first, *others = (dict(seen) for seen in self._seen)
        return [seen.get(version, float("inf")) - moment for version, moment in first.items() for seen in others]

    def close(self) -> None:
        """Follow no more."""
        self._ended = True
        for link in self._links:
            link.close()
