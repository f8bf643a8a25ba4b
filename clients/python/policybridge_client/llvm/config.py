"""How a compiler is hosted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError
from policybridge_serdes import PolicyReference

NO_LIMIT: Final = float("inf")
"""LLVM stops asking once a module has grown by a factor, 2 unless told otherwise; so large a one is never reached."""


@dataclass(frozen=True)
class HostConfig:
    """How a compiler is hosted.

    Attributes:
        policy: who answers.
        server: its address, as for `connect`.
        task: what is asked, by a name in `TASKS`: ``inline``, ``evict``, ``priority``, or another distribution's.
        fallback: what happens where there is no advice. ``default``: LLVM's own decision, in the same run where it is
            known, else in a second run that asks nothing. ``error``: the compiler is ended.
        timeout: seconds, for each wait for the server.
        growth_limit: the factor of growth after which LLVM stops asking, and inlines no more; the default is none.
        options: for the policy to read.
        labels: to find the session by.

    Raises:
        InvalidError: a value is out of its range.

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
