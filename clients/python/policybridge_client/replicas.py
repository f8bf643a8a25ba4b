"""The replicas of a server, and waiting for them."""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub

WaitFor = Literal["none", "most", "all"]

_WAITS: Final = {"none": pb.WAIT_FOR_NONE, "most": pb.WAIT_FOR_MOST, "all": pb.WAIT_FOR_ALL}


class Replica(msgspec.Struct, frozen=True):
    """One replica.

    Attributes:
        name: its machine and its address.
        current: whether it serves the leader's state at the time of the call.
        away: seconds since it was connected; ``None`` while it is.
        lacks: versions that it cannot serve, each with the reason.
        kept: versions that it has and the server never had.

    """

    name: str
    current: bool
    away: float | None
    lacks: list[str]
    kept: list[str] = []

    def __str__(self) -> str:
        keeps = f", and keeps {', '.join(self.kept)}, which this server never had" if self.kept else ""
        return f"{self._state()}{keeps}"

    def _state(self) -> str:
        if self.current:
            return f"{self.name} is current"
        if self.away is not None:
            return f"{self.name} has been away for {self.away:.0f} s"
        return f"{self.name} lacks {'; '.join(self.lacks)}" if self.lacks else f"{self.name} is not done yet"


class Replicas(msgspec.Struct, frozen=True):
    """The replicas, and whether enough of them are current (``met``)."""

    met: bool
    replicas: list[Replica]

    @property
    def behind(self) -> list[Replica]:
        """Those that are not current."""
        return [replica for replica in self.replicas if not replica.current]


def ask_replicas(stub: ReplicationServiceStub, call: Callable[..., Any], wait_for: WaitFor, seconds: float) -> Replicas:
    """See `RepositoryClient.replicas`."""
    request = pb.ReplicasRequest(wait_for=_WAITS[wait_for], seconds=seconds)
    response: pb.ReplicasResponse = call(stub.Replicas, request, more_seconds=seconds)
    return Replicas(response.met, [_replica(each) for each in response.replicas])


def _replica(message: pb.Replica) -> Replica:
    kept = [f"{each.name}@{each.version}" for each in message.kept]
    away = message.away_seconds if message.HasField("away_seconds") else None
    return Replica(message.name, message.current, away, [_lack(lack) for lack in message.lacks], kept)


def _lack(message: pb.Lack) -> str:
    what = f"{message.policy}@{message.version}" if message.version else message.policy
    return f"{what}: {message.reason}"
