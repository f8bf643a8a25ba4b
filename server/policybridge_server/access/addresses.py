"""Which addresses others than this machine can reach."""

import socket
from ipaddress import ip_address


def host_of(address: str) -> str:
    """Give the HOST of ``HOST:PORT``; brackets of IPv6 are cut off."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the name or address; false if it is unknown."""
    try:
        addresses = {str(each[4][0]) for each in socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return bool(host) and all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def is_loopback_address(text: str) -> bool:
    """Whether ``text`` is an address that this machine alone has."""
    try:
        return ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
