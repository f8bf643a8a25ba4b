"""The one place where an unexpected exception becomes an error that a client may read."""

import logging

from policybridge_core.errors import PolicyBridgeError, UnknownError

_LOG = logging.getLogger(__name__)


def as_error(error: Exception, what: str, session: str = "") -> PolicyBridgeError:
    """Give the error that the client is told.

    An exception that is no `PolicyBridgeError` is a fault of the server. The log gets its traceback, the
    client its text.

    Args:
        error: what was raised.
        what: what failed, for the log: ``"a session on the socket"``.
        session: id of the session that it belongs to, if it is known.

    """
    if isinstance(error, PolicyBridgeError):
        return error
    _LOG.error("%s failed", what, exc_info=error, extra={"session": session})
    return UnknownError(f"the server failed: {error!r}")
