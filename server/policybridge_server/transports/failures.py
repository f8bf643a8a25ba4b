"""The one place where an unexpected exception becomes an error that a client may read."""

import logging

from policybridge_core.errors import PolicyBridgeError, UnknownError

_LOG = logging.getLogger(__name__)


def as_error(error: Exception, what: str, session: str = "") -> PolicyBridgeError:
    """Return the error for the client.

    An exception that is no `PolicyBridgeError` is a fault of the server. The log gets its traceback, the
    client its text.

    Args:
        error: the exception.
        what: the failing part, for the log: ``"a session on the socket"``.
        session: the session's id, if known.

    """
    if isinstance(error, PolicyBridgeError):
        return error
    _LOG.error("%s failed", what, exc_info=error, extra={"session": session})
    return UnknownError(f"the server failed: {error!r}")
