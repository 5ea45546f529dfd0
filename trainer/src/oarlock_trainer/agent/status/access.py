"""Who may read /status, and ask for a checkpoint with it.

Of a gang with a key: who signs with it, and to read also the pod itself; otherwise everybody. `kubectl port-forward` comes
from the pod itself, too, and with it whatever page is open in that person's browser: no page may ask for anything, and none
whose own name was led to 127.0.0.1 (DNS rebinding) may read. Only who comes from the pod itself is held to a Host header: the
API server's proxy, which the operator may go by, hands on the name that the API server itself was asked by. A signed question
gets a signed answer, which nobody between the two can forge.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from oarlock_api.contract import gang_key
from oarlock_api.contract.requests import Request, parse_query

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


@dataclass(frozen=True, slots=True)
class StatusAccess:
    """`key` is the attempt's, None where the gang has none."""

    key: bytes | None = field(default=None, repr=False)
    pod_uid: str = ""

    def answer(self, target: str, host: str, asked: str, body: str) -> str | None:
        """The answer to a client at address `host` that asks for `target`; None where it is refused.

        `asked`: its Host header.
        """
        if self.key is None:
            return None if is_led_here(host, asked) else body
        if self._is_signed(self.key, target):
            return gang_key.answer(self.key, target, body)
        return body if is_from_here(host, asked) else None

    def request(self, target: str, host: str, asked: str, *, meant: bool) -> Request | None:
        """What a client at address `host` asks for besides the status, where it may. `asked`: its Host header.

        `meant`: it has the header that no page in a browser can set for an address of another site (contract.requests.MEANT).
        """
        if self.key is not None:
            if not self._is_signed(self.key, target):
                return None
            return parse_query(gang_key.requested(self.key, target, pod_uid=self.pod_uid))
        if is_here(host) and (is_led_here(host, asked) or not meant):
            return None
        return parse_query(parse_qs(target.partition("?")[2][: gang_key.MAX_QUERY]).get("request", [""])[0])

    def ended(self, target: str) -> str:
        """The pods whose end the operator has seen, as it says with a question that is signed; else empty."""
        return self._told(target, gang_key.told_to_have_ended)

    def surge(self, target: str) -> str:
        """The surge pods that the operator makes, as it says with a question that is signed; else empty."""
        return self._told(target, gang_key.told_of_surge)

    def _told(self, target: str, read: Callable[..., str]) -> str:
        """What a signed question says besides, as `read` of gang_key finds it proven; else empty."""
        if self.key is None or not self._is_signed(self.key, target):
            return ""
        return read(self.key, target, pod_uid=self.pod_uid)

    def _is_signed(self, key: bytes, target: str) -> bool:
        return gang_key.asked_by_one_of_us(key, target, pod_uid=self.pod_uid, now=time.time())


def is_here(host: str) -> bool:
    """Whether a client's address is 127.0.0.1 or ::1. Others of the loopback's are no proof of being within the pod.

    The sidecar of a service mesh hands everybody's connections on, Istio's from 127.0.0.6.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address) in _LOOPBACK


def is_from_here(host: str, asked: str) -> bool:
    """Whether a request comes from the pod itself and means it: `asked` is its Host header.

    A page in a browser, whose own name leads to 127.0.0.1 where somebody runs `kubectl port-forward`, names another host.
    """
    return is_here(host) and _name(asked) in {"", "localhost", "127.0.0.1", "[::1]"}


def is_led_here(host: str, asked: str) -> bool:
    """Whether a request may be that of a page in a browser whose own name leads to a forwarded port (DNS rebinding)."""
    return is_here(host) and not _is_no_domain(_name(asked))


def _is_no_domain(name: str) -> bool:
    """Whether a host's name is an address, which no web site has led here by its own DNS."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name in {"", "localhost"}
    return True


def _name(asked: str) -> str:
    """A Host header without its port."""
    name, colon, port = asked.rpartition(":")
    return name if colon and port.isdecimal() else asked
