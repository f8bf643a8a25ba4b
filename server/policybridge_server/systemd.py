"""The protocol of systemd and a service: sockets that systemd opens before, and notifications of the service's state.

Both are plain system calls (sd_listen_fds(3), sd_notify(3)), so that no library is needed. Without systemd nothing
happens here.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

_FIRST: Final = 3
"""The first descriptor that is passed (SD_LISTEN_FDS_START)."""


_BOUND: Final = "POLICYBRIDGE_BOUND"
"""Names a worker's sockets from its parent, as LISTEN_FDS and LISTEN_PID do for systemd's."""


def notify(*states: str) -> None:
    """Tell the service manager, if there is one: ``READY=1``, ``RELOADING=1``, ``STOPPING=1``, ``STATUS=…``."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        # An address that begins with @ is in Linux's abstract namespace.
        channel.sendto("\n".join(states).encode(), f"\0{address[1:]}" if address[0] == "@" else address)


def notify_reloading() -> None:
    """Tell the service manager that a reload begins; ``READY=1`` ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def given_socket(address: str) -> socket.socket | None:
    """Return the listening socket passed for ``HOST:PORT`` or for a path; ``None`` if there is none.

    The passed socket stays open, so that systemd's socket outlives this server's use of it.
    """
    bound = _bound().get(address)
    if bound is not None:
        return socket.socket(fileno=os.dup(bound))
    for descriptor in _passed():
        with suppress(OSError):
            os.set_inheritable(descriptor, False)
            listener = socket.socket(fileno=os.dup(descriptor))
            if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and _name(listener) == address:
                return listener
            listener.close()
    return None


def give(bound: Mapping[str, int]) -> None:
    """Let this process find the sockets that its parent has bound, by ``HOST:PORT`` or path."""
    os.environ[_BOUND] = json.dumps({"process": os.getpid(), "sockets": bound})


def _bound() -> dict[str, int]:
    text = os.environ.get(_BOUND, "")
    descriptors = json.loads(text) if text else {}
    return dict(descriptors["sockets"]) if descriptors and descriptors["process"] == os.getpid() else {}


def given_addresses() -> Iterator[str]:
    """Give the addresses of all listening sockets that were passed."""
    for descriptor in _passed():
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:
            yield _name(listener)


def _passed() -> range:
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return range(0)
    count = os.environ.get("LISTEN_FDS", "")
    return range(_FIRST, _FIRST + int(count)) if count.isdecimal() and len(count) < 5 else range(0)


def _name(listener: socket.socket) -> str:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return name if isinstance(name, str) else f"@{os.fsdecode(name[1:])}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"{host}:{name[1]}"
