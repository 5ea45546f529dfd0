"""Numbers that no two clusters of one machine have at the same time.

A cluster's addresses, its link's name and its cgroups derive from its slot, so clusters never collide, whoever
starts them and wherever their folders are. A slot is held by an abstract unix socket: the kernel frees it with the
death of the last process that has it open, so nothing can be left behind.
"""

import errno
import socket
from collections.abc import Iterable

from oarlock_local.errors import MachineError

COUNT = 100


def lease(number: int) -> socket.socket | None:
    """Take that slot for as long as the returned socket is open in any process; None where it is taken."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0oarlock-local-slot-{number}")
    except OSError as error:
        holder.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return holder


def lease_any(usable: Iterable[int] = range(COUNT)) -> tuple[int, socket.socket]:
    """Take the first free slot of those; raises MachineError where there is none."""
    for number in usable:
        if holder := lease(number):
            return number, holder
    raise MachineError(
        f"no free address range for another local cluster: all {COUNT} of 10.128.0.0/16 and up are used by local "
        "clusters or by routes of this machine (ip route). `oarlock-local status` lists the clusters, `down` ends one."
    )
