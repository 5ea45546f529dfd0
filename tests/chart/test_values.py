"""Values, their schema, their documentation and the operator's settings say the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from oarlock_local.binaries import HELM_DOCS
from oarlock_local.build import built
from oarlock_local.errors import BuildError
from oarlock_operator.process.settings import Settings
from tests.chart.rendering import CHART

OF_THE_CHART = {
    "kubeconfig",
    "namespaces",
    "trainer_image",
    "host",
    "port",
    "leader_election",
    "lease_namespace",
    "lease_name",
    "pod_access",
    "cordon_dry_run",
    "key_file",
    "network_policies",
    "network_policy_from",
}
"""Settings that the chart sets itself, or that would break its probes, ports or rights."""
FREE = {"settings"}
"""Values whose keys are the user's choice among those of the schema."""


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool, bool]]:
    """Each name in either of the two, and whether it stands in the values and in the schema."""
    known = schema.get("properties", {})
    for name in values.keys() | known.keys():
        yield f"{path}{name}", name in values, name in known
        if name not in FREE and isinstance(values.get(name), dict) and "properties" in known.get(name, {}):
            yield from leaves(values[name], known[name], f"{path}{name}.")


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    apart = [name for name, in_values, in_schema in leaves(values, schema) if not (in_values and in_schema)]
    assert apart == ["global"], "a parent chart may pass `global` to any chart"


def test_settings_are_those_of_the_operator() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    wanted = {name.upper() for name in Settings.model_fields.keys() - OF_THE_CHART}
    assert set(schema["properties"]["settings"]["properties"]) == wanted


def test_the_readme_tells_every_value_as_values_yaml_does() -> None:
    try:
        program = built(HELM_DOCS)
    except BuildError as error:
        pytest.skip(str(error))
    command = [str(program), "--chart-search-root", str(CHART.parent), "--sort-values-order", "file"]
    written = subprocess.run([*command, "--dry-run"], check=True, capture_output=True, text=True).stdout
    assert written.strip() == (CHART / "README.md").read_text().strip(), f"out of date: run {' '.join(command)}"
    undocumented = [line for line in written.splitlines() if line.startswith("| ") and line.endswith("|  |")]
    assert not undocumented
