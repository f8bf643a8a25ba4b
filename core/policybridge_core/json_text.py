"""JSON for people and scripts, as commands write it."""

from collections.abc import Mapping

import msgspec


def json_text(value: object) -> str:
    """Write a value with its fields below each other; of names and paths, bytes that are not UTF-8 become U+FFFD."""
    return msgspec.json.format(msgspec.json.encode(_unicode(msgspec.to_builtins(value)))).decode()


def _unicode(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_unicode(name): _unicode(each) for name, each in value.items()}
    return [_unicode(each) for each in value] if isinstance(value, list | tuple) else value
