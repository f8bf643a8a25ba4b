"""How long a policy may take before it is given up."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Seconds.

    Attributes:
        decision: for one evaluation, where policy.toml does not say another number.
        load: for loading, probing and warming up a version.

    """

    decision: float = 60.0
    load: float = 300.0
