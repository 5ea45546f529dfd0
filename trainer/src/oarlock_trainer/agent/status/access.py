"""Who may read /status: in a gang with a key whoever signs with it, and the pod itself; otherwise everybody.

The pod itself is also where `kubectl port-forward` comes from. What is signed is answered with a signature, so that nobody
between the two can put words into a pod's mouth.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field

from oarlock_api.contract import gang_key


@dataclass(frozen=True, slots=True)
class Door:
    """`key` is the attempt's, None where the gang has none."""

    key: bytes | None = field(default=None, repr=False)
    pod_uid: str = ""

    def answer(self, target: str, host: str, body: str) -> str | None:
        """What a client at this address is told that asks for `target`; None where it is told nothing."""
        if self.key is None:
            return body
        if gang_key.asked_by_one_of_us(self.key, target, pod_uid=self.pod_uid, now=time.time()):
            return gang_key.answer(self.key, target, body)
        return body if is_here(host) else None


def is_here(host: str) -> bool:
    """Whether a client's address is the loopback's, whichever family it came by."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
