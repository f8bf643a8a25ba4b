"""Paths of Unix sockets."""

import socket
import stat
from pathlib import Path


def remove_stale(path: Path) -> None:
    """Remove the socket file that a dead server left at ``path``; what somebody listens on, or is no socket, stays."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
