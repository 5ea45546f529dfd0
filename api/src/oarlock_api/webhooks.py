"""spec.webhooks: who is told what happens in a run."""

from typing import Annotated, ClassVar

from pydantic import Field

from oarlock_api.contract.webhooks import WebhookLevel, WebhookType
from oarlock_api.group import Group
from oarlock_api.primitives import Label, Text, Url
from oarlock_api.rules import ListSet, Rule, exactly_one
from oarlock_api.secret_refs import SecretKeyRef

EventType = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z]+([._][a-z]+)*$")]


class Webhook(Group):
    """A receiver of events, in SimpleTuner's format with further fields."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one("url", "url_secret_ref", message="say where to send: set exactly one of url and urlSecretRef"),
    )

    name: Label = Field(description="Name of this entry.")
    type: WebhookType = Field(
        default=WebhookType.RAW, description="Raw = JSON, Discord = a message. SimpleTuner: webhook_type."
    )
    url: Url | None = Field(default=None, description="Address. SimpleTuner: callback_url, webhook_url.")
    url_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Secret with the address, where the address itself is a secret (Discord)."
    )
    auth_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Secret with a token that is sent as X-API-Key. SimpleTuner: auth_token."
    )
    signature_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Secret with a key by which each message is signed (HMAC-SHA256, header X-Oarlock-Signature), so "
        "that the receiver knows who sent it.",
    )
    message_prefix: Text | None = Field(
        default=None, description="Text before each message. SimpleTuner: message_prefix."
    )
    events: Annotated[tuple[EventType, ...], Field(max_length=64), ListSet()] = Field(
        default=(), description="Types of events, such as gpu.fault or training.checkpoint; absent = all."
    )
    min_level: WebhookLevel = Field(
        default=WebhookLevel.INFO, description="Least level that is sent. SimpleTuner: log_level."
    )
