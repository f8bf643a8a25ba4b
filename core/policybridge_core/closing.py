"""Closing at the end of a ``with`` block."""

from types import TracebackType
from typing import Self


class Closing:
    """Makes a context manager of a class with ``close()``."""

    def close(self) -> None:
        """Release the resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
