"""The limits of one compilation."""

from dataclasses import dataclass
from typing import Final

from policybridge_client.llvm.surroundings import CompilerLimits
from policybridge_core.errors import InvalidError

MIB: Final = 1 << 20
_MOST_SECONDS: Final = 1e6
_MOST_MEMORY: Final = 1 << 60


@dataclass(frozen=True)
class Limits(CompilerLimits):
    """What one compilation may take: wall seconds, and bytes of address space.

    Raises:
        InvalidError: a limit is not above 0, or of a size that no system can keep to.

    """

    def __post_init__(self) -> None:
        # Not NaN either, with which every comparison is false.
        if not 0 < self.seconds <= _MOST_SECONDS:
            raise InvalidError(f"seconds={self.seconds:g}: a compilation has more than 0 and at most {_MOST_SECONDS:g}")
        if not 0 < self.memory <= _MOST_MEMORY:
            raise InvalidError(
                f"memory={self.memory / MIB:g} MiB: a compilation has more than 0 and at most {_MOST_MEMORY / MIB:g}"
            )

    @classmethod
    def read(cls, seconds: str, memory: str = "") -> "Limits":
        """Read limits from a task's options, in seconds and MiB; the defaults where one is empty.

        Raises:
            InvalidError: one is no number, or cannot be kept to.

        """
        try:
            return cls(float(seconds or cls.seconds), int(memory) * MIB if memory else cls.memory)
        except ValueError as error:
            raise InvalidError(f"seconds={seconds} or memory={memory} is no number") from error
