"""The job's settings as rows of path and value, without what looks secret: its object's, else those that its output keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from oarlock.facts.model import Facts, Object
from oarlock.story import Setting
from oarlock_api.contract.struck_out import struck_out

MOST = 1000


def spec_of(facts: Facts) -> Object:
    """The TrainingJob's spec, of a job that is gone as it was kept; empty where nobody knows it."""
    kept = facts.output.spec if facts.output else None
    spec = (facts.job or kept or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


def settings(facts: Facts) -> tuple[Setting, ...]:
    """All of them, or the first 1,000."""
    return tuple(islice(_rows(struck_out(spec_of(facts))), MOST))


def _rows(value: object, path: str = "") -> Iterator[Setting]:
    """Each value under its path, such as training.optimizer.learningRate.

    Variables of an environment stand under their names.
    """
    if isinstance(value, Mapping):
        named = value.get("name")
        if isinstance(named, str) and isinstance(value.get("value"), str):  # an environment's variable
            yield Setting(path=f"{path}.{named}", value=str(value["value"]))
            return
        for key, inner in value.items():
            yield from _rows(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, list, tuple)) for one in value):
        for place, inner in enumerate(value):
            yield from _rows(inner, f"{path}[{place}]")
    else:
        words = ", ".join(_words(one) for one in (value if isinstance(value, (list, tuple)) else (value,)))
        yield Setting(path=path, value=words)


def _words(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
