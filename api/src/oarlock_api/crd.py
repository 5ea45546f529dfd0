"""The CustomResourceDefinition of TrainingJob, made from the models.

`python -m oarlock_api.crd` writes crds/trainingjobs.yaml; with --check it only compares.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from oarlock_api.contract.names import GROUP, KIND, PLURAL, VERSION
from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_api.rules import VALIDATIONS
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import TrainingJobStatus
from oarlock_api.structural import structural_schema
from oarlock_api.trainingjob import TrainingJob

PATH = REPOSITORY / "crds" / "trainingjobs.yaml"

_HEADER = """\
# Made from the models in api/src/oarlock_api by `python -m oarlock_api.crd`: change those, not this file.
"""

_COLUMNS: tuple[tuple[str, str, str, bool], ...] = (
    ("Phase", "string", ".status.phase", False),
    ("Nodes", "string", ".status.summary.nodes", False),
    ("Step", "string", ".status.summary.step", False),
    ("S/Step", "number", ".status.progress.secondsPerStep", False),
    ("Restarts", "integer", ".status.restartCount", False),
    ("Age", "date", ".metadata.creationTimestamp", False),
    ("Round", "integer", ".status.round", True),
    ("ETA", "string", ".status.summary.eta", True),
    ("Loss", "number", ".status.progress.loss", True),
    ("Checkpoint", "integer", ".status.latestCheckpoint.step", True),
    ("Reason", "string", ".status.reason", True),
    ("Last-Fault", "string", ".status.summary.lastFault", True),
)
"""Name, type, JSON path, and whether the column shows with -o wide only."""

_SELECTABLE = (".status.phase", ".spec.suspend")


def custom_resource_definition() -> dict[str, Any]:
    """Build the CRD as an object, always the same for the same models."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tj"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": path} for path in _SELECTABLE],
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, wide: bool) -> dict[str, Any]:  # noqa: FBT001 - a row of the table above
    return {"name": name, "type": kind, "jsonPath": path, "priority": int(wide)}


def _schema() -> dict[str, Any]:
    fields = TrainingJob.model_fields
    return {
        "description": TrainingJob.__doc__,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "description": fields["api_version"].description},
            "kind": {"type": "string", "description": fields["kind"].description},
            "metadata": {"type": "object"},
            "spec": {
                **structural_schema(TrainingJobSpec, defaults=True),
                "description": fields["spec"].description,
            },
            "status": {
                **structural_schema(TrainingJobStatus, defaults=False),
                "description": fields["status"].description,
                # Until the operator has looked, as tools find that wait for a job (kstatus): it lags behind any generation.
                "default": {"observedGeneration": -1},
                # One writer, who replaces it whole: the server need not track who owns which of its hundred fields.
                "x-kubernetes-map-type": "atomic",
            },
        },
        "required": ["spec"],
        VALIDATIONS: [rule.as_schema() for rule in TrainingJob.admission],
    }


class _Dumper(yaml.SafeDumper):
    """Writes shared pieces out in full: anchors are hard to read in a diff."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def render() -> str:
    """Write the CRD as YAML."""
    return _HEADER + yaml.dump(custom_resource_definition(), Dumper=_Dumper, sort_keys=False, width=120)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the committed file."""
    return write_or_check(module="oarlock_api.crd", path=PATH, content=render(), arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
