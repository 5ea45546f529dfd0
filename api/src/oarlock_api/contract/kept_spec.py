"""The settings of a job, kept below its output for when its object is gone: what an attempt was begun with.

    operator: settings(spec) -> environment.Variable.SPEC of rank 0's pod
    agent:    KeptSpec(...).to_json() -> <output>/.oarlock/history/spec.json, replaced by each attempt
    reader:   read_spec(output)

What looks secret is struck out before it leaves the operator. Plain data without pydantic: agents run in images of others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock_api.contract.beneath import Beneath, beneath
from oarlock_api.contract.history import HISTORY
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.struck_out import struck_out
from oarlock_api.contract.wire import WireError, encodable, integer, parse_object, text

SPEC = f"{HISTORY}/spec.json"
VERSION = 1
MAX_SETTINGS = 32 * 1024
"""Bytes that the operator tells a pod: Linux takes four times as much in one variable."""
MAX_FILE = 4 * MAX_SETTINGS
_SHORT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSpec:
    """Whose settings, of which attempt, and since when. `job` is the job's uid, `time` RFC 3339 in UTC, `spec` the API's."""

    job: str
    namespace: str
    name: str
    attempt: int
    time: str
    spec: Mapping[str, Any]

    def to_json(self) -> str:
        """The file's content."""
        who = {"job": self.job, "namespace": self.namespace, "name": self.name}
        told = {"version": VERSION, **who, "attempt": self.attempt, "time": self.time, "spec": dict(self.spec)}
        return encodable(json.dumps(told, ensure_ascii=False, indent=1)) + "\n"


def settings(spec: Mapping[str, Any]) -> str:
    """One line of at most MAX_SETTINGS bytes, without what looks secret. Without `$`, which Kubernetes would expand.

    Where it is too long, the longest fields are left out, with a word in their place.
    """
    told = {name: dict(value) if isinstance(value, dict) else value for name, value in struck_out(dict(spec)).items()}
    while len(written := json.dumps(told, separators=(",", ":")).replace("$", "\\u0024")) > MAX_SETTINGS:
        fields = [(told, name) for name, value in told.items() if not isinstance(value, dict)]
        fields += [(value, name) for value in told.values() if isinstance(value, dict) for name in value]
        size, place = max(
            ((len(json.dumps(group[name])), at) for at, (group, name) in enumerate(fields)), default=(0, 0)
        )
        if size <= _SHORT:
            return ""
        group, name = fields[place]
        group[name] = f"(left out: {size} bytes)"
    return written


def parse_settings(body: str) -> dict[str, Any]:
    """Read what the operator told; empty where there is nothing, or it cannot be read."""
    try:
        return parse_object(body, max_bytes=MAX_SETTINGS)
    except WireError:
        return {}


def parse_spec(body: str) -> KeptSpec:
    """Read the file. Raises WireError where it is none."""
    raw = parse_object(body, max_bytes=MAX_FILE)
    spec, attempt = raw.get("spec"), integer(raw.get("attempt"))
    if not isinstance(spec, dict) or attempt is None:
        raise WireError("spec or attempt is missing")
    return KeptSpec(
        job=text(raw.get("job"), 64),
        namespace=text(raw.get("namespace"), 253),
        name=text(raw.get("name"), 253),
        attempt=attempt,
        time=text(raw.get("time"), 40),
        spec=spec,
    )


def read_spec(output: Path | Beneath) -> KeptSpec | None:
    """The settings in this output directory; None where none are kept. Raises OSError and WireError."""
    try:
        return parse_spec(read_regular(beneath(output) / SPEC, most=MAX_FILE + 1).decode(errors="replace"))
    except FileNotFoundError:
        return None
