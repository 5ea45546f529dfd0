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
    size = len(json.dumps(spec, separators=(",", ":"), ensure_ascii=False, default=str).encode(errors="replace"))
    if size > MOST_BYTES:
        raise PydanticCustomError("too_large", "{words}", {"words": too_large(size)})
    return spec


def too_large(size: int) -> str:
    """What a job is told whose spec has `size` bytes."""
    return (
        f"spec has {size} bytes, and at most {MOST_BYTES} are read: leave out of pod.patch and affinity what the pods do "
        "not need, and put data into volumes"
    )


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
