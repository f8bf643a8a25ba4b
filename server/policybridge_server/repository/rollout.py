"""``DIR/<policy>/rollout.json``: the running roll-out, or else the last one."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from policybridge_server.repository.numbers import StateFile

LATEST: Final = "latest"

FILES: Final = 20
"""Default number of files that both versions have compiled before the first comparison."""

State = Literal["running", "promoted", "withdrawn"]


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A share of an alias's new sessions gets one version, the others another one.

    Attributes:
        version: the version to roll out.
        base: the version of the other sessions.
        alias: the alias whose sessions are shared out.
        share: the share of the files, 0 to 1.
        promote_if: conditions that must all hold for the server to promote it.
        withdraw_if: conditions of which one must hold for the server to withdraw it.
        files: that both versions have compiled before they are first compared.
        state: whether it runs, or its end.
        reason: why it is in this state, or the last comparison.
        begun: seconds since 1970.
        ended: likewise; ``None`` while it runs.
        looks: number of comparisons.
        withdrawn: further versions excluded from `latest`: those of earlier roll-outs, and those rolled
            back.

    """

    version: int
    base: int
    alias: str
    share: float
    promote_if: tuple[str, ...] = ()
    withdraw_if: tuple[str, ...] = ()
    files: int = FILES
    state: State = "running"
    reason: str = ""
    begun: float = 0.0
    ended: float | None = None
    looks: int = 0
    withdrawn: tuple[int, ...] = ()

    @property
    def running(self) -> bool:
        """Whether sessions are still shared out."""
        return self.state == "running"

    def holds_back(self, number: int) -> bool:
        """Whether `latest` does not name this version."""
        if number in self.withdrawn:
            return True
        return self.alias == LATEST and self.state != "promoted" and self.base < number <= self.version

    def takes(self, policy: str, file: str) -> bool:
        """Whether the sessions of a file get the version: the same at every time, and also when the share grows.

        Those without a file do not: they would change from version to version.
        """
        if not file:
            return False
        text = f"{policy}\0{self.version}\0{file}"
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") < self.share * 2**64


ROLLOUT: Final = StateFile("rollout.json", Rollout, "no version is rolled out")
"""Missing if the policy never had a roll-out."""


@dataclass(frozen=True)
class RolloutStep:
    """A step of a roll-out.

    Attributes:
        policy: the policy's name.
        what: ``begun``, ``changed``, ``compared``, ``promoted`` or ``withdrawn``.
        rollout: the roll-out after the step.
        when: seconds since 1970.

    """

    policy: str
    what: str
    rollout: Rollout
    when: float
