"""How a compiler is hosted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError
from policybridge_serdes import PolicyReference

NO_LIMIT: Final = float("inf")
"""LLVM stops asking when a module has grown by a factor, 2 by default. No module reaches this factor."""


@dataclass(frozen=True)
class HostConfig:
    """How a compiler is hosted.

    Attributes:
        policy: the policy that gives the advice.
        server: the server's address, as for `connect`.
        task: a name in `TASKS`: ``inline``, ``evict``, ``priority``, or a task of another distribution.
        fallback: what happens without advice. ``default``: LLVM's own decision is used, in the same run if it is
            known, else in a second run without the policy. ``error``: the compiler is ended.
        timeout: limit of each wait for the server, in seconds.
        growth_limit: the factor of growth after which LLVM stops asking and inlines no more; by default no limit.
        options: options that the policy may read.
        labels: labels by which the session is found in the ledger.

    Raises:
        InvalidError: a value is out of range.

    """

    policy: PolicyReference
    server: str
    task: str = INLINE.name
    fallback: Literal["default", "error"] = "default"
    timeout: float = 10.0
    growth_limit: float = NO_LIMIT
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fallback not in ("default", "error"):
            raise InvalidError(f"a fallback is 'default' or 'error', not {self.fallback!r}")
        if not self.timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {self.timeout}")
        if not self.growth_limit > 0:
            raise InvalidError(f"a growth limit is a factor above 0, not {self.growth_limit}")
