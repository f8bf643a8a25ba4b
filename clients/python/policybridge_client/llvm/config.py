"""How a compiler is hosted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policybridge_client.credentials import Credentials
from policybridge_client.llvm.bounds import GROWTH_LIMIT, RETRY_AFTER
from policybridge_client.llvm.tasks import INLINE
from policybridge_client.local import Evaluate
from policybridge_core.errors import InvalidError
from policybridge_serdes import Exploration, PolicyReference


@dataclass(frozen=True)
class HostConfig:
    """How a compiler is hosted.

    Attributes:
        policy: the policy that gives the advice: a reference, or a string such as ``inliner`` or ``inliner@3``.
        server: the server's address, as for `connect`.
        task: a name in `TASKS`: ``inline``, ``evict``, ``priority``, or a task of another distribution.
        fallback: the behaviour without advice. ``default``: LLVM's own decision is used, in the same run if it is
            known, else in a second run without the policy. ``error``: the compiler is ended.
        timeout: limit of each wait for the server, in seconds.
        growth_limit: the factor of the module's size that the policy may add to it; see `Growth`. Beyond that LLVM's
            own decisions are used; if they are not known, LLVM inlines no more.
        retry_after: seconds for which a time-out of the server is remembered, so that the other compilations of a build
            do not wait for it; 0: not at all. Only with the fallback ``default``.
        options: options that the policy may read.
        labels: labels of the session in the ledger.
        exploration: how the compiler's sessions depart from the policy's best advice, for policies with a ``[head]``;
            ``None``: they do not. The seed is mixed with the source's name; see `Exploration.of_module`.
        evaluate: where decisions are made, as for `open_runner`.
        spool: whether records are kept on disk that a server has not acknowledged, for the next client; see `Spool`.
        credentials: for gRPC on TCP; by default those that the environment names.
        llvm: the compiler's LLVM major version; ``None``: the compiler is asked.

    Raises:
        InvalidError: a value is out of range.

    """

    policy: PolicyReference | str
    server: str
    task: str = INLINE.name
    fallback: Literal["default", "error"] = "default"
    timeout: float = 10.0
    growth_limit: float = GROWTH_LIMIT
    retry_after: float = RETRY_AFTER
    options: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    exploration: Exploration | None = None
    evaluate: Evaluate = "auto"
    spool: bool = True
    credentials: Credentials | None = None
    llvm: int | None = None

    @property
    def reference(self) -> PolicyReference:
        """The policy as a reference."""
        return PolicyReference.parse(self.policy) if isinstance(self.policy, str) else self.policy

    def __post_init__(self) -> None:
        if not isinstance(self.reference, PolicyReference) or not self.reference.name:
            raise InvalidError(f"a policy is NAME, NAME@VERSION, NAME@ALIAS or a PolicyReference, not {self.policy!r}")
        if self.fallback not in ("default", "error"):
            raise InvalidError(f"a fallback is 'default' or 'error', not {self.fallback!r}")
        if not self.timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {self.timeout}")
        if not self.growth_limit > 0:
            raise InvalidError(f"a growth limit is a factor above 0, not {self.growth_limit}")
        if not self.retry_after >= 0:
            raise InvalidError(f"a server is retried after 0 seconds or more, not {self.retry_after}")
