"""The job as YAML that can be submitted again, without what looks secret."""

from __future__ import annotations

import yaml

from oarlock.explain.advice import job_of
from oarlock.explain.settings import spec_of
from oarlock.facts import Facts
from oarlock.facts.model import Object
from oarlock.report.markup import Html, cut, element, with_code
from oarlock.report.parts import section
from oarlock_api.contract.names import API_VERSION, KIND
from oarlock_api.contract.struck_out import STRUCK_OUT, struck_out

MOST = 200_000
"""Characters."""


def manifest(facts: Facts) -> Html:
    """The section; what is not known is said in it."""
    spec = spec_of(facts)
    if not spec:
        return section(
            "YAML", element("p", "The job's object is not at hand, and its output does not keep it.", class_="dim")
        )
    said = cut(_yaml(facts, spec), MOST)
    secret = f"Values that look secret are {STRUCK_OUT.strip('()')}: give them again before you submit it. "
    note = f"{secret if STRUCK_OUT in said else ''}`oarlock get -o yaml {job_of(facts)}` has the status, too."
    return section(
        "YAML",
        element(
            "details",
            element("summary", "The job as it can be submitted"),
            element("p", with_code(note), class_="dim"),
            element("button", "Copy", type="button", hidden=True, data_copies="yaml-text"),
            element("pre", element("code", said), id="yaml-text", tabindex="0"),
        ),
    )


def _yaml(facts: Facts, spec: Object) -> str:
    metadata = (facts.job or {}).get("metadata") or {"name": facts.name, "namespace": facts.namespace}
    # Annotations hold whole manifests that tools have applied, with what was secret in them.
    kept = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    told = {"apiVersion": API_VERSION, "kind": KIND, "metadata": kept, "spec": struck_out(spec)}
    # Not libyaml's: it raises for characters that UTF-8 cannot write.
    text: str = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=100)
    return text
