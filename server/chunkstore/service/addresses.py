"""Addresses that a server without authentication may bind: loopback alone."""

from __future__ import annotations

import ipaddress

from chunkstore.domain.errors import InvalidFieldError


def checked_address(address: str, setting: str) -> tuple[str, int]:
    """Host and port of a `host:port` address, if it is a loopback one; raises InvalidFieldError naming `setting`."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidFieldError(setting, "must be HOST:PORT")
    if not is_loopback(host):
        raise InvalidFieldError(
            setting,
            "must be a loopback address (127.0.0.1, [::1], localhost): without authentication any caller "
            "could choose any tenant",
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host, an IPv6 one in brackets, is this machine's own, whatever a name server says."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
