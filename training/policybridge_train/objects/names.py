"""Symbol names, which may be any bytes."""


def as_utf8(name: str) -> str:
    """Give a name with other bytes than UTF-8 spelt out: it may be any bytes, and a search is written down as UTF-8."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
