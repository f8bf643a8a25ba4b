"""Checking text before it is sent."""


def is_unicode(text: str) -> bool:
    """Say whether ``text`` is valid Unicode; a file name that is not UTF-8 gives a ``str`` that is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
