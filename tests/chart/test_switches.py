"""Each switch of the chart on and off: every template and every value is reached, and the API server takes what comes of it.

Switches are read from the schema, so a new one is tried without being named here. The API server's own dry run with strict
validation stands where others use kubeconform: it knows every kind of its version and of the definitions given to it,
their defaults, and the rules that no schema can tell.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock_local.binaries import KUBERNETES_VERSION
from oarlock_local.cluster import Cluster
from tests.chart.rendering import CHART, EVERYTHING, NAMED, render

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
HERE: dict[str, Any] = {**EVERYTHING, "namespaces": ["default"], "cordon": False}
WITHOUT_API = {**EVERYTHING, "crds": {"enabled": False}}
BY_TAG = {**NAMED, "image": {**NAMED["image"], "tag": "my-tag"}}
RELEASES = ("123", "my.release", "7." + "a" * 51, "a" * 53)
"""Names that helm takes, and that no Service may have as they are; and the longest."""
NOT_ALONE = {
    "admissionPolicy.enabled=true",
    "dashboard.actions=true",
    "dashboard.ingress.enabled=true",
    "dashboard.httpRoute.enabled=true",
}
"""What the schema refuses for lack of something that belongs to it, or what is nothing without the page."""
MEANT = {
    "{{ .Release.Name }}-extra": "oarlock-extra",
    "{{ .Release.Namespace }}": "oarlock",
    "https://docs.example.com/NAME.html": "https://docs.example.com/operator-down.html",
}
"""What is rendered of values that are templates, or have a name to be put in."""
PARTS = ("-operator", "-web")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def leaves(values: dict[str, Any], schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each value of the schema is; a value whose keys are the user's own is one."""
    for name, said in schema["properties"].items():
        if name in values and "properties" in said and name != "settings":
            yield from leaves(values[name], said, (*path, name))
        elif name in values:
            yield (*path, name)


def at(values: dict[str, Any], path: tuple[str, ...], otherwise: Any = None) -> Any:
    """The value there, `otherwise` where there is none."""
    held: Any = values
    for name in path:
        if name not in held:
            return otherwise
        held = held[name]
    return held


def changed(values: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy with another value there."""
    copied = copy.deepcopy(values)
    reduce(lambda held, name: held.setdefault(name, {}), path[:-1], copied)[path[-1]] = value
    return copied


SCHEMA = json.loads((CHART / "values.schema.json").read_text())
LEAVES = list(leaves(DEFAULTS, SCHEMA))


def settings_of(path: tuple[str, ...]) -> list[Any]:
    """All that a switch can be set to; nothing for a value that is none."""
    said = reduce(lambda held, name: held["properties"][name], path, SCHEMA)
    choice: list[Any] = said.get("enum", [True, False] if said.get("type") == "boolean" else [])
    return choice


SWITCHES = {f"{'.'.join(path)}={json.dumps(value)}": (path, value) for path in LEAVES for value in settings_of(path)}


def cases() -> dict[str, dict[str, Any]]:
    """Values by what is switched: each switch on top of nothing, and on top of everything."""
    found: dict[str, dict[str, Any]] = {"nothing": NAMED, "everything": EVERYTHING, "here": HERE, "by tag": BY_TAG}
    for name, (path, value) in SWITCHES.items():
        if name not in NOT_ALONE and value != at(DEFAULTS, path):
            found[f"only {name}"] = changed(NAMED, path, value)
        if value != at(EVERYTHING, path, at(DEFAULTS, path)):
            found[f"everything, {name}"] = changed(EVERYTHING, path, value)
    return found


CASES = cases()
ALIASES = {f"case-{number}": name for number, name in enumerate(CASES)}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One chart that has this one as a part for each case: each call of helm takes time."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "charts").mkdir()
    (folder / "charts/oarlock").symlink_to(CHART)
    parts = [{"name": "oarlock", "version": "*", "alias": alias} for alias in ALIASES]
    chart = {"apiVersion": "v2", "name": "cases", "version": "1.0.0", "dependencies": parts}
    (folder / "Chart.yaml").write_text(json.dumps(chart))
    (folder / "values.yaml").write_text(json.dumps({alias: CASES[name] for alias, name in ALIASES.items()}))
    return folder


def rendered(helm_program: Path, parent: Path) -> dict[str, dict[str, str]]:
    """Manifests by case and template."""
    command = [str(helm_program), "template", "oarlock", str(parent), "--namespace", "oarlock"]
    command += ["--kube-version", KUBERNETES_VERSION]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = {name: {} for name in CASES}
    for part in re.split(r"^---$", text, flags=re.MULTILINE):
        if source := re.search(r"^# Source: cases/charts/([^/]+)/templates/(\S+)$", part, re.MULTILINE):
            manifests = found[ALIASES[source[1]]]
            # What helm 4 adds at the end of some.
            manifests[source[2]] = f"{manifests.get(source[2], '')}---{part.rstrip()}\n"
    return found


@pytest.fixture(scope="module")
def sources(helm_program: Path, parent: Path) -> dict[str, dict[str, str]]:
    return rendered(helm_program, parent)


def test_both_versions_of_helm_render_the_same(
    helm_programs: dict[str, Path], parent: Path, sources: dict[str, dict[str, str]]
) -> None:
    assert rendered(helm_programs["helm 3"], parent) == sources


@pytest.fixture(scope="module")
def variants(sources: dict[str, dict[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Objects by case, without the API, which is always there."""
    return {
        name: list(yaml.load_all("".join(text for file, text in files.items() if file != "crd.yaml"), yaml.CSafeLoader))
        for name, files in sources.items()
    }


@pytest.mark.cluster
def test_whatever_is_switched_and_whatever_a_release_is_called_the_api_server_takes_it_to_the_letter(
    variants: dict[str, list[dict[str, Any]]], helm_program: Path, monitored: Cluster
) -> None:
    named = [render(helm_program, WITHOUT_API, release=name) for name in RELEASES]
    different = {json.dumps(item, sort_keys=True) for objects in (*variants.values(), *named) for item in objects}
    body = {"apiVersion": "v1", "kind": "List", "items": [json.loads(item) for item in sorted(different)]}
    answer = monitored.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"), stdin=json.dumps(body)
    )
    assert len(answer.splitlines()) == len(different)


@pytest.mark.parametrize("case", [name for name in CASES if "=" in name])
def test_a_switch_has_an_effect(case: str, sources: dict[str, dict[str, str]]) -> None:
    assert sources[case] != sources["nothing" if case.startswith("only") else "everything"]


def scalars(value: Any) -> Iterator[str]:
    """The words and numbers of a value, as manifests have them."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from (name, *scalars(held))
    elif isinstance(value, list):
        yield from (word for held in value for word in scalars(held))
    elif not isinstance(value, bool):
        yield str(value)


@pytest.mark.parametrize("path", [path for path in LEAVES if not settings_of(path)], ids=".".join)
def test_a_value_that_is_set_is_rendered(path: tuple[str, ...], variants: dict[str, list[dict[str, Any]]]) -> None:
    sets = {"everything": EVERYTHING, "here": HERE, "by tag": BY_TAG}
    name = next(name for name, values in sets.items() if at(values, path, at(DEFAULTS, path)) != at(DEFAULTS, path))
    text = json.dumps(variants[name])
    for word in scalars(at(sets[name], path)):
        assert re.search(rf"(?<![a-zA-Z0-9.]){re.escape(MEANT.get(word, word))}(?!\w)", text), word


def test_every_template_is_reached(sources: dict[str, dict[str, str]]) -> None:
    assert sources["everything"].keys() == {path.name for path in (CHART / "templates").glob("*.yaml")}


@pytest.mark.parametrize("release", RELEASES)
def test_a_service_and_the_hosts_of_pods_may_have_the_name_that_comes_of_a_release(
    release: str, helm_program: Path
) -> None:
    """Newer API servers take Services with digits first; the oldest one that the chart is for does not."""
    objects = render(helm_program, WITHOUT_API, release=release)
    kinds = {"Service", "Deployment", "ServiceAccount", "Lease"}
    found = [(item["kind"], item["metadata"]) for item in objects if item["kind"] in kinds]
    names = {suffix: {each["name"] for _, each in found if each["name"].endswith(suffix)} for suffix in PARTS}
    assert Counter(kind for kind, _ in found) == {"Service": 2, "Deployment": 2, "ServiceAccount": 2, "Lease": 1}
    for name in names.values():
        assert len(name) == 1
        assert DNS_LABEL.fullmatch(*name)
    assert {each["labels"]["app.kubernetes.io/instance"] for _, each in found} == {release}
