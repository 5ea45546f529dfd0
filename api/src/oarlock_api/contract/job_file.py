"""job.json: what the operator tells every pod of an attempt about the job.

An older trainer image must refuse what it does not know instead of training differently, so the reader is strict here:
another version or an unknown field of the gang's facts is an error, and `training` is validated by the job's own models.
A job with a trainer of its own has `custom` instead of `training`. Secrets never stand in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar, get_type_hints

from oarlock_api.contract.environment import LINK_PORT, STATUS_PORT
from oarlock_api.contract.secrets import is_secret_variable
from oarlock_api.contract.wire import WireError, parse_object

JOB_FILE_VERSION = 1
MAX_BYTES = 256 * 1024
"""It travels in an annotation of the pod, and Kubernetes takes no more of all annotations together."""
_Member = TypeVar("_Member", bound=StrEnum)


class WebhookType(StrEnum):
    """The receiver's format."""

    RAW = "Raw"
    DISCORD = "Discord"


class WebhookLevel(StrEnum):
    """How much a message matters, from little to much."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"
    CRITICAL = "Critical"

    @property
    def weight(self) -> int:
        """Order of importance."""
        return list(WebhookLevel).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An entry of spec.webhooks. Secrets are told by the name of the variable that holds them, see contract.secrets.

    Either `url` or `url_variable` says where to send. No `events` are all events.
    """

    name: str
    type: WebhookType = WebhookType.RAW
    url: str = ""
    url_variable: str = ""
    auth_variable: str = ""
    signature_variable: str = ""
    message_prefix: str = ""
    events: tuple[str, ...] = ()
    min_level: WebhookLevel = WebhookLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomProgram:
    """spec.custom: what the agent starts on each node instead of the built-in trainer's ranks.

    `command` and `args` are one command line, `working_dir` is absolute, empty for the image's own.
    """

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    working_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One attempt's facts.

    `output_directory` is absolute in the pod, `min_free_bytes` None where the trainer's own estimate decides,
    `training` is spec.training as the API wrote it (camelCase, defaults filled in), empty where the job has a trainer of
    its own, `custom`. `previous_owner_is_gone`: whoever
    made the pods has seen that nothing is left of an earlier job of this namespace and name, so its fence is a left-over.
    `hang_seconds` is spec.recovery.hangSeconds: 0 = the agent learns from the steps when they are overdue. The checks are
    those of spec.preflight; where one of the newer three is missing, the operator is older and does not ask for it.
    `min_bus_bandwidth`: in GB/s, 0 = none is too little, None = the trainer's own measure.
    `link_port` is where rank 0's agent listens for the others, `rendezvous_port` where its rank 0 does: 0 where whoever
    starts the ranks says so, as an older operator does in the pods' environment.
    """

    job: str
    namespace: str
    job_uid: str
    attempt: int
    nodes: int
    gpus_per_node: int
    output_directory: str
    training: dict[str, Any]
    min_free_bytes: int | None = None
    storage_check: bool = True
    clock_check: bool = False
    gpu_check: bool = False
    collective_check: bool = False
    min_bus_bandwidth: int | None = None
    preflight_timeout_seconds: int = 300
    status_port: int = STATUS_PORT
    previous_owner_is_gone: bool = False
    hang_seconds: int = 0
    link_port: int = LINK_PORT
    rendezvous_port: int = 0
    webhooks: tuple[Webhook, ...] = ()
    custom: CustomProgram | None = None

    def to_json(self) -> str:
        """Deterministic, and short, because each pod of a gang carries it: what is as the reader takes it is left out.

        Not so in `training`: an image of another release may have other defaults, and must train what the API promised.
        """
        told = {
            name: value
            for name, value in asdict(self).items()
            if name not in _DEFAULTS or getattr(self, name) != _DEFAULTS[name]
        }
        return json.dumps(
            {"version": JOB_FILE_VERSION, **told}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )


_DEFAULTS = {field.name: field.default for field in fields(JobFile) if field.default is not MISSING}


_HINTS = get_type_hints(JobFile)
_KINDS: dict[str, Any] = {field.name: _HINTS[field.name] for field in fields(JobFile)} | {
    "training": dict,
    "webhooks": list,
    "custom": dict,
}
_CUSTOM_FIELDS = frozenset(field.name for field in fields(CustomProgram))
_WEBHOOK_FIELDS = frozenset(field.name for field in fields(Webhook))
_WEBHOOK_VARIABLES = ("url_variable", "auth_variable", "signature_variable")


def parse_job_file(body: str) -> JobFile:
    """Read job.json.

    Raises WireError (the pod then ends with 85) where the version, a field or a type is not one that this image knows.
    """
    raw = parse_object(body, max_bytes=MAX_BYTES)
    version = raw.pop("version", None)
    if version != JOB_FILE_VERSION or isinstance(version, bool):
        raise WireError(
            f"job.json has version {version}, this image knows {JOB_FILE_VERSION}: "
            "use the trainer image of the operator's release"
        )
    _refuse_unknown(raw, frozenset(_KINDS), where="")
    if wrong := sorted(name for name, value in raw.items() if not _fits(value, _KINDS[name])):
        raise WireError(f"job.json has values of a wrong type: {', '.join(wrong)}")
    webhooks = tuple(_webhook(one, f"webhooks[{place}]") for place, one in enumerate(raw.pop("webhooks", ())))
    custom = _custom(raw.pop("custom")) if "custom" in raw else None
    if custom and raw.get("training"):
        raise WireError("job.json has to name one trainer: it has training and custom")
    try:
        return JobFile(**raw, webhooks=webhooks, custom=custom)
    except TypeError as error:
        raise WireError(f"job.json is incomplete: {error}") from error


def _refuse_unknown(raw: Mapping[str, Any], known: frozenset[str], *, where: str) -> None:
    if unknown := sorted(where + name for name in raw.keys() - known):
        raise WireError(f"job.json has fields that this image does not know: {', '.join(unknown)}: use a newer image")


def _fits(value: object, kind: Any) -> bool:
    # True and False are integers to Python, and to nobody else.
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _custom(raw: dict[str, Any]) -> CustomProgram:
    _refuse_unknown(raw, _CUSTOM_FIELDS, where="custom.")
    lists = {name: raw.get(name, []) for name in ("command", "args")}
    wrong = [name for name, words in lists.items() if not _are_texts(words)]
    working_dir = raw.get("working_dir", "")
    if not isinstance(working_dir, str) or (working_dir and not working_dir.startswith("/")):
        wrong.append("working_dir")
    if wrong:
        raise WireError(f"job.json has values of a wrong type: {', '.join(f'custom.{name}' for name in wrong)}")
    if not lists["command"]:
        raise WireError("job.json is incomplete: custom.command is missing")
    return CustomProgram(command=tuple(lists["command"]), args=tuple(lists["args"]), working_dir=working_dir)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _webhook(raw: object, where: str) -> Webhook:
    if not isinstance(raw, dict):
        raise WireError(f"job.json has values of a wrong type: {where}")
    _refuse_unknown(raw, _WEBHOOK_FIELDS, where=f"{where}.")
    events = raw.pop("events", [])
    wrong = [name for name, value in raw.items() if not isinstance(value, str)]
    if not _are_texts(events):
        wrong.append("events")
    if wrong:
        raise WireError(
            f"job.json has values of a wrong type: {', '.join(f'{where}.{name}' for name in sorted(wrong))}"
        )
    if not raw.get("name"):
        raise WireError(f"job.json is incomplete: {where}.name is missing")
    if bool(raw.get("url")) == bool(raw.get("url_variable")):
        raise WireError(f"job.json has to name exactly one of url and url_variable: {where}")
    for name in _WEBHOOK_VARIABLES:
        if raw.get(name) and not is_secret_variable(raw[name]):
            raise WireError(f"job.json names a variable that holds no secret of the job: {where}.{name}")
    return Webhook(
        **{
            **raw,
            "type": _member(WebhookType, raw.get("type", WebhookType.RAW), f"{where}.type"),
            "min_level": _member(WebhookLevel, raw.get("min_level", WebhookLevel.INFO), f"{where}.min_level"),
            "events": tuple(events),
        }
    )


def _member(kind: type[_Member], value: str, where: str) -> _Member:
    try:
        return kind(value)
    except ValueError as error:
        raise WireError(f"job.json has a value that this image does not know: {where} is {value!r}") from error
