"""The network interface that has an address: what NCCL and gloo are given in the node's network.

There they would guess: NCCL takes every interface but docker's and the loopback (a CNI's bridges too), gloo the address
that the node's host name stands for, which is often 127.0.1.1. The operator tells the pod's address; the interface that
has it is the one by which the other nodes reach this one. Its name may differ from node to node, so it is looked up here,
by getifaddrs(3): the standard library knows interfaces by name only, not by address.
"""

from __future__ import annotations

import ctypes
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Entry(ctypes.Structure):
    """struct ifaddrs, as far as it is read."""


_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
)
_PLACES = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
"""Family -> where in its socket address the address proper begins, and its length in bytes."""


def interface_with(address: str) -> str | None:
    """Name of this network namespace's interface with `address`, IPv4 or IPv6; None where there is none, or no address."""
    for name, known in _addresses():
        if known == address:
            # A further address may carry a label: eth0:1.
            return name.partition(":")[0]
    return None


def _addresses() -> Iterator[tuple[str, str]]:
    """(interface, address), as often as one has them."""
    library = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        return
    try:
        entry = first
        while entry:
            place = entry.contents.address
            family = ctypes.c_ushort.from_address(place).value if place else 0
            if place and family in _PLACES:
                offset, length = _PLACES[socket.AddressFamily(family)]
                yield entry.contents.name.decode(), socket.inet_ntop(family, ctypes.string_at(place + offset, length))
            entry = entry.contents.next
    finally:
        library.freeifaddrs(first)
