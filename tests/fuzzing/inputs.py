"""What a target is, and how one cuts its input. Imports little: tests use the peers of the targets, too."""

from collections.abc import Callable, Iterator

Target = Callable[[bytes], None]
"""Takes one input. It raises anything if the code under test broke its promise."""


def pieces(data: bytes) -> Iterator[bytes]:
    """Cut an input into pieces: each begins with its length, one byte."""
    while data:
        size = data[0]
        yield data[1 : 1 + size]
        data = data[1 + size :]
