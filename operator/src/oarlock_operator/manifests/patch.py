"""spec.pod.patch over a finished pod spec: a strategic merge, as kubectl's but without directives.

Maps merge, a null takes a key away, a list whose entries have a key is merged entry by entry, any other list is
replaced. Entries that are new come last, in the patch's order. It never raises: what makes no pod spec is left to the
API server, which says what is wrong. What a patch may not touch was refused with the job (oarlock_api.pod_patch).
"""

from __future__ import annotations

from typing import Any

_OF_A_CONTAINER = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "resources.claims": ("name",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
_MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    **{f"{kind}.{path}": key for kind in ("containers", "initContainers") for path, key in _OF_A_CONTAINER.items()},
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumes": ("name",),
}
"""Path of a list in the pod spec -> what tells its entries apart: the list maps of Kubernetes' PodSpec (core/v1)."""
_DEFAULTS = {"protocol": "TCP"}
"""Parts of a key that may be left out."""


def patched(base: Any, patch: Any, path: str = "") -> Any:
    """Merge `patch` over `base`, which stands at `path` of the pod spec; neither is changed."""
    if isinstance(patch, dict):
        result = dict(base) if isinstance(base, dict) else {}
        for name, value in patch.items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = patched(result.get(name), value, f"{path}.{name}" if path else name)
        return result
    if isinstance(patch, list) and path in _MERGE_KEYS:
        return _entries(base if isinstance(base, list) else [], patch, path)
    return patch


def _entries(base: list[Any], patch: list[Any], path: str) -> list[Any]:
    result = list(base)
    places = {_key(entry, path): place for place, entry in enumerate(base)}
    for entry in patch:
        # The key as it will stand there: nulls within it go, and the same patch must find the entry again.
        place = places.setdefault(_key(patched(None, entry, path), path), len(result))
        if place == len(result):
            result.append(None)
        result[place] = patched(result[place], entry, path)
    return result


def _key(entry: Any, path: str) -> tuple[str, ...]:
    known = entry if isinstance(entry, dict) else {}
    return tuple(str(known.get(part, _DEFAULTS.get(part))) for part in _MERGE_KEYS[path])
