# Made from the models in api/src/oarlock_api by `python -m oarlock_api.sections`: change those, not this file.
"""Sections of the spec that pods read. What each field means, the models say."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyRef:
    """One key of a Secret of the job's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A trainer of one's own, in an image of one's own."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    working_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports in the pod; to be changed with hostNetwork, where other programs of the node may hold them."""

    rendezvous: int = 29500
    status: int = 9400
    link: int = 9401


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Checks in every pod before a GPU is busy."""

    storage: bool = True
    clock: bool = True
    gpus: bool = True
    collective: bool = True
    min_bus_bandwidth: int | None = None
    timeout_seconds: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The newest state of the training in the nodes' memory, beside the checkpoints in the storage."""

    every_steps: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What happens when something breaks. May be changed at any time."""

    in_place: InPlace = InPlace.NEVER
    standby_seconds: int = 300
    memory: MemoryState = MemoryState()
    hang_seconds: int = 0
    drill_every_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """A gang that goes on with fewer nodes while some are lost, and grows again."""

    min_nodes: int
    patience_seconds: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A receiver of events, in SimpleTuner's format with further fields."""

    name: str
    type: WebhookType = WebhookType.RAW
    url: str | None = None
    url_secret_ref: SecretKeyRef | None = None
    auth_secret_ref: SecretKeyRef | None = None
    signature_secret_ref: SecretKeyRef | None = None
    message_prefix: str | None = None
    events: tuple[str, ...] = ()
    min_level: WebhookLevel = WebhookLevel.INFO
