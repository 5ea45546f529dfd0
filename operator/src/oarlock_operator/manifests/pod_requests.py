"""What a pod (a manifest) asks for, as the scheduler adds it up, pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from oarlock_api.quantity import amount

Json = dict[str, Any]
_NONE = Decimal(0)


def requests(pod: Json) -> dict[str, Decimal]:
    """What a pod's containers ask for together, at most; a limit alone counts as a request. Raises ValueError.

    An init container counts as the larger of the two, one that stays (a sidecar) is added, and so is the overhead.
    """
    spec = pod["spec"]
    first = spec.get("initContainers") or []
    staying = [*(spec.get("containers") or []), *(one for one in first if one.get("restartPolicy") == "Always")]
    total: dict[str, Decimal] = {}
    for asked in (*map(_asked, staying), _amounts(spec.get("overhead") or {})):
        for name, value in asked.items():
            total[name] = total.get(name, _NONE) + value
    for container in first:
        for name, value in _asked(container).items():
            total[name] = max(total.get(name, _NONE), value)
    return total


def _asked(container: Json) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(written: Json) -> dict[str, Decimal]:
    return {name: amount(str(value)) for name, value in written.items()}
