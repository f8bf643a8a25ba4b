"""Commands as a person copies them to a shell."""

import shlex
from collections.abc import Sequence


def in_shell(words: Sequence[str]) -> str:
    """Give a command for a shell; words that cannot be printed are quoted as bash and zsh read them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    known = {"\\": "\\\\", "'": "\\'"}
    bytes_ = (known.get(one, one) if one.isprintable() else _escaped(one) for one in word)
    return f"$'{''.join(bytes_)}'"


def _escaped(one: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in one.encode(errors="surrogateescape"))
