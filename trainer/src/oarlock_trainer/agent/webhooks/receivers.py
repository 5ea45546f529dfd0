"""A receiver: where it is, what it wants to hear, and the bytes and headers of each message to it.

Secrets come in from the environment and stay out of every repr and every sentence. What is wrong with a receiver is
found once, at the start: a message must never fail for a reason that was known before.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.secrets import secret_variable
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType
from oarlock_api.contract.wire import encodable
from oarlock_trainer.agent.webhooks.delivery import Address, AddressError, address_of
from oarlock_trainer.agent.webhooks.discord import discord
from oarlock_trainer.agent.webhooks.envelope import PROGRESS, WebhookEvent
from oarlock_trainer.agent.webhooks.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_api.contract.sections import SecretKeyRef, Webhook

USER_AGENT = "oarlock-trainer"


class ReceiverError(ValueError):
    """Nothing can be sent to this receiver. The message says why, without a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """An entry of spec.webhooks with its secrets in place. `place` is what may be shown of its address."""

    name: str
    type: WebhookType
    address: Address = field(repr=False)
    place: str
    token: str = field(default="", repr=False)
    key: bytes = field(default=b"", repr=False)
    message_prefix: str = ""
    events: frozenset[str] = frozenset()
    min_level: WebhookLevel = WebhookLevel.INFO

    def wants(self, event: WebhookEvent) -> bool:
        """Whether the receiver asked for it. In a chat, progress every minute is noise unless it was named."""
        if event.level.weight < self.min_level.weight:
            return False
        if not self.events:
            return event.type != PROGRESS or self.type is not WebhookType.DISCORD
        return event.type in self.events

    def body(self, payload: dict[str, Any]) -> bytes:
        """The payload as this receiver reads it."""
        if self.type is WebhookType.DISCORD:
            said = discord(payload, self.message_prefix)
        elif self.message_prefix:
            said = payload | {"message": f"{self.message_prefix} {payload['message']}"}
        else:
            said = payload
        return encodable(json.dumps(said, ensure_ascii=False, separators=(",", ":"))).encode()

    def headers(self, event_type: str, body: bytes, seconds: float) -> dict[str, str]:
        """Headers of one try at `seconds` since 1970: each is signed anew, so that a late one is not taken for a replay."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "X-Oarlock-Event": event_type,
        }
        if self.token:
            headers["X-API-Key"] = self.token
        if self.key:
            moment = str(int(seconds))
            headers["X-Oarlock-Timestamp"] = moment
            headers["X-Oarlock-Signature"] = signature(self.key, moment, body)
        return headers


def signature(key: bytes, moment: str, body: bytes) -> str:
    """HMAC-SHA256 over the timestamp header, a dot and the body."""
    return "sha256=" + hmac.new(key, moment.encode() + b"." + body, hashlib.sha256).hexdigest()


def receiver_of(webhook: Webhook, environment: Mapping[str, str]) -> Receiver:
    """The receiver that an entry of job.json describes.

    Raises ReceiverError where a secret is absent or the address is none.
    """
    token = _secret(webhook.auth_secret_ref, environment)
    if not token.isascii() or not token.isprintable():
        raise ReceiverError("its token has characters that no HTTP header can carry: mend the Secret of authSecretRef")
    try:
        address = address_of(_secret(webhook.url_secret_ref, environment) or webhook.url or "")
    except AddressError as error:
        raise ReceiverError(f"its address is none: {error}") from None  # the cause would show the address
    return Receiver(
        name=webhook.name,
        type=webhook.type,
        address=address,
        place=redacted(webhook.url) if webhook.url else "the address in its Secret",
        token=token,
        key=_secret(webhook.signature_secret_ref, environment).encode(),
        message_prefix=webhook.message_prefix or "",
        events=frozenset(webhook.events),
        min_level=webhook.min_level,
    )


def _secret(reference: SecretKeyRef | None, environment: Mapping[str, str]) -> str:
    """Value without the newline that `kubectl create secret --from-file` likes to bring along."""
    if reference is None:
        return ""
    variable = secret_variable(reference.name, reference.key)
    value = environment.get(variable, "").strip()
    if not value:
        raise ReceiverError(f"{variable} is empty: is there anything in the Secret that the job names?")
    return value
