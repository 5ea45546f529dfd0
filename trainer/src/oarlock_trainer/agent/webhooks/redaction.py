"""Keeping secrets out of logs and messages: addresses are shown without what may be one, known values are struck out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oarlock_api.contract.secret_names import variable_is_secret
from oarlock_api.contract.secrets import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STRUCK = "***"
SHORTEST = 6
"""Characters. A shorter value is no secret, and striking it out would maim every sentence."""


def redacted(url: str) -> str:
    """Scheme, host and port of an address: path and query are often the secret, as with Discord."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return _STRUCK
    if not host:
        return _STRUCK
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "") + ("/***" if parts.path.strip("/") else "")


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the secrets that the operator maps and of variables whose names say so; longest first: no rest is left."""
    secret = (
        value for name, value in environment.items() if name.startswith(PREFIX) or variable_is_secret(name, value)
    )
    found = {value.strip() for value in secret}
    return tuple(sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True))


def without_secrets(value: Any, secrets: Sequence[str]) -> Any:
    """The same JSON value with each secret struck out of its texts."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _STRUCK)
        return value
    if isinstance(value, dict):
        return {key: without_secrets(below, secrets) for key, below in value.items()}
    if isinstance(value, list):
        return [without_secrets(below, secrets) for below in value]
    return value
