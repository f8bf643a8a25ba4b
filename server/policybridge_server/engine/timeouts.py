"""Time limits of a policy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Seconds.

    Attributes:
        decision: seconds for one evaluation, unless policy.toml sets it.
        load: seconds for loading, probing and warming up a version.

    """

    decision: float = 60.0
    load: float = 300.0
