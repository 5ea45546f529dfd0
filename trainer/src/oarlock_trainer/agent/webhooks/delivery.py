"""One try to deliver: an HTTP POST over a connection of its own, bounded in time, and what the answer means.

Certificates are verified (SSL_CERT_FILE adds an authority of one's own), redirects are not followed: a message with a
token in its headers goes to the configured host or nowhere. Nothing here is ever logged with an address in it.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import math
import socket
import ssl
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_SECONDS = 5.0
"""For each of connecting, sending and waiting for the answer."""
_WHOLE = 2.0
"""Times that for all of them together: an answer that drips in never lets a single wait run out."""
_MAX_ANSWER = 65536
_AGAIN = frozenset({408, 429})


class AddressError(ValueError):
    """No address that a message can go to. The message does not repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address, taken apart. `login` is the Authorization header of a user and password in it, or empty."""

    secure: bool
    host: str
    port: int | None
    target: str = field(repr=False)
    login: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a try ended. `status` is None where nobody answered, `retry_after` in seconds."""

    status: int | None
    words: str
    retry_after: float | None = None

    @property
    def taken(self) -> bool:
        """The receiver has it."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def worth_another_try(self) -> bool:
        """The same message may be taken later."""
        return self.status is None or self.status in _AGAIN or self.status >= 500


def address_of(url: str) -> Address:
    """Take a URL apart. Raises AddressError where it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise AddressError("it cannot be read as a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise AddressError("it must begin with http:// or https:// and a host")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise AddressError("it holds a space or a control character")
    login = ""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = "Basic " + base64.b64encode(user.encode()).decode()
    # What is escaped stays as it is; what HTTP cannot carry is escaped.
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
        "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?") if parts.query else ""
    )
    return Address(secure=parts.scheme == "https", host=host, port=port, target=target, login=login)


class Post:
    """POSTs to one address. Not to be shared between threads."""

    def __init__(self, address: Address, *, seconds: float = SOCKET_SECONDS) -> None:
        self._address = address
        self._seconds = seconds
        self._context: ssl.SSLContext | None = None

    def __call__(self, body: bytes, headers: Mapping[str, str], *, now: float) -> Answer:
        """One try at `now` seconds since 1970. Never raises.

        It takes at most twice the socket's time, and what the resolver needs.
        """
        try:
            connection = self._connection()
        except OSError as error:  # an SSL_CERT_FILE that is not there
            return Answer(status=None, words=_words(error))
        watch = threading.Timer(_WHOLE * self._seconds, _cut, (connection,))
        watch.daemon = True
        try:
            watch.start()
            login = {"Authorization": self._address.login} if self._address.login else {}
            connection.request("POST", self._address.target, body, {**headers, **login, "Connection": "close"})
            response = connection.getresponse()
            with contextlib.suppress(OSError, http.client.HTTPException):  # polite, and of no interest
                response.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException, ValueError, RuntimeError) as error:  # the last: no thread to be had
            return Answer(status=None, words=_words(error))
        finally:
            watch.cancel()
            connection.close()
        after = retry_after(response.getheader("Retry-After"), now)
        return Answer(status=response.status, words=f"it answered {response.status}", retry_after=after)

    def _connection(self) -> http.client.HTTPConnection:
        address = self._address
        if not address.secure:
            return http.client.HTTPConnection(address.host, address.port, timeout=self._seconds)
        self._context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(address.host, address.port, timeout=self._seconds, context=self._context)


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms; None where it says nothing that can be read."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    """Why nobody answered. The text of an HTTPException may repeat the address, so its kind has to do."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or ("it took too long" if isinstance(error, TimeoutError) else type(error).__name__)
