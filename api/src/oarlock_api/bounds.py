"""How large and how deep a spec may be, as a whole.

The schema bounds each field, but a pod's patch and affinities are open: one person's could be so deep that no parser takes
it, or so large that whoever reads a thousand jobs has no room. The API server cannot say so, hence the models do.
"""

import json
from typing import Any

from pydantic_core import PydanticCustomError

MOST_LEVELS = 32
"""Objects and lists within each other; the deepest that Kubernetes' own pod API needs is about fifteen."""
MOST_BYTES = 128 * 1024
"""Of the spec as JSON. Every pod of the gang carries what is in it, and an object of the API server ends at 1.5 MB."""
_SHOWN = 3


def check_bounds(spec: Any) -> Any:
    """The spec as given. Raises PydanticCustomError where it is too deep or too large, never anything else."""
    if path := _too_deep(spec):
        raise PydanticCustomError(
            "too_deep",
            "{path} is nested more than {most} levels deep: write it flatter",
            {"path": path, "most": MOST_LEVELS},
        )
    if (size := _bytes(spec)) > MOST_BYTES:
        raise PydanticCustomError("too_large", "{words}", {"words": too_large(size, most_in=_largest(spec))})
    return spec


def too_large(size: int, *, most_in: str = "") -> str:
    """What a job is told whose spec has `size` bytes. `most_in`: the field that has most of them, where it is known."""
    where = f", most of them in {most_in}" if most_in else ""
    return (
        f"spec has {size} bytes{where}, and at most {MOST_BYTES} are read: leave out what the pods do not need, and put data "
        "into volumes, and many prompts into a file of one (training.validation.promptsFrom)"
    )


def _largest(spec: Any) -> str:
    """The innermost field that has more than half of the bytes; empty where no field has."""
    half, path, value = _bytes(spec) / 2, [], spec
    while isinstance(value, dict):
        name, value = max(value.items(), key=lambda item: _bytes(item[1]), default=("", None))
        if _bytes(value) <= half:
            break
        path.append(str(name)[:64])
    return ".".join(path)


def _bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).encode(errors="replace"))


def _too_deep(spec: Any) -> str:
    """Where it is too deep, by its first few names; empty where it is not. Without recursion, which has a limit itself."""
    waiting: list[tuple[Any, int, tuple[str, ...]]] = [(spec, 1, ("spec",))]
    while waiting:
        value, level, path = waiting.pop()
        if not isinstance(value, dict | list | tuple):
            continue
        if level > MOST_LEVELS:
            return ".".join(path)
        named = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [(below, level + 1, (*path, str(name)) if len(path) < _SHOWN else path) for name, below in named]
    return ""
