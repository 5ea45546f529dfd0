"""The job as YAML that kubectl reads as it was meant, in the order of the API, without what nobody set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from oarlock_api.manifest import ManifestLoader

if TYPE_CHECKING:
    from oarlock_api.trainingjob import TrainingJob


class _Dumper(yaml.SafeDumper):
    """Quotes whatever kubectl or PyYAML would take for something else than text, such as 1e5 or yes."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *ManifestLoader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {**yaml.SafeDumper.yaml_implicit_resolvers, **ManifestLoader.yaml_implicit_resolvers}
    }


def manifest(job: TrainingJob) -> str:
    """The manifest: the same job gives the same text."""
    head = {"apiVersion": job.api_version, "kind": job.kind, "metadata": {"name": job.metadata.name}}
    spec = job.spec.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, mode="json")
    return yaml.dump(head | {"spec": _plain(spec)}, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _plain(value: Any) -> Any:
    """Whole numbers without a point: 1024 where the model has 1024.0."""
    if isinstance(value, dict):
        return {key: _plain(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_plain(below) for below in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
