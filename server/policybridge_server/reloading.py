"""SIGHUP: reread the configuration, and apply the keys that a running server can change."""

import logging
import os
from collections.abc import Callable
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig
from policybridge_server.engine.admission import Admission

_LOG = logging.getLogger(__name__)

RELOADED: Final = ("log_format", "log_level", "max_client_opens", "max_client_sessions", "max_sessions")
"""The fields whose new values apply. Files of tokens and of TLS are reread by themselves when they change."""


class Configuration:
    """The configuration that a running server has.

    Args:
        config: that it runs with.
        read: reads it again.

    """

    def __init__(self, config: ServerConfig, read: Callable[[], ServerConfig]) -> None:
        self._config = config
        self._read = read

    def reread(self) -> ServerConfig:
        """Read it, and return the new configuration; if it cannot be used, the old one."""
        try:
            self._take(self._read())
        except PolicyBridgeError as error:
            _LOG.warning("the configuration cannot be used; the one before stays: %s", error)
        return self._config

    def _take(self, config: ServerConfig) -> None:
        names = [name for name in config.__struct_fields__ if getattr(config, name) != getattr(self._config, name)]
        late = [f"--{name.replace('_', '-')}" for name in names if name not in RELOADED]
        if late:
            _LOG.warning("the configuration is read again; %s wait for the next start", ", ".join(late))
        else:
            _LOG.info("the configuration is read again")
        self._config = with_reloaded(self._config, config)


def with_reloaded(config: ServerConfig, read: ServerConfig) -> ServerConfig:
    """Return ``config`` with the values of ``read`` that a running server can change."""
    return msgspec.structs.replace(config, **{name: getattr(read, name) for name in RELOADED})


class Reloading:
    """Takes a new configuration in a running process. For the loop thread.

    Args:
        admission: of the process.
        access: of the process.

    """

    def __init__(self, admission: Admission, access: Access) -> None:
        self._admission = admission
        self._access = access

    def take(self, config: ServerConfig) -> None:
        """Take the values of ``config``, and read the files that it names."""
        admission = self._admission
        admission.most, admission.most_of_client = config.max_sessions, config.max_client_sessions
        admission.most_in_second = config.max_client_opens
        self._access.reload()


def terminal_gone(had_terminal: bool) -> bool:
    """Whether this process had a terminal that hung up since: then SIGHUP asks it to end, and not to reload."""
    return had_terminal and not has_terminal()


def has_terminal() -> bool:
    """Whether this process belongs to a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
