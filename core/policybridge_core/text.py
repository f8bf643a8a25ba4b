"""Text that can be sent."""


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be sent; a file name that Python read from a system of another encoding cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
