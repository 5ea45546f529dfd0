"""Alerts as Prometheus' own promtool judges them: each fires when it should, says what it should, and else is silent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from oarlock_local.binaries import PROMTOOL
from oarlock_local.build import built
from oarlock_local.errors import BuildError
from tests.chart.alert_cases import CASES, POD, Case
from tests.chart.rendering import CHART

FILE = CHART / "files/alerts.yaml"
RULES = {rule["alert"]: rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]}
GIVEN = {("pod", "a"), ("pod", "b"), ("job", "oarlock/oarlock-operator")}
"""Labels of the cases that Prometheus puts to what it reads."""
SHOWN = "from prometheus_client import generate_latest; from oarlock_operator.metrics import REGISTRY; "
SHOWN += "print(generate_latest(REGISTRY).decode())"
"""What an operator shows before it has counted anything."""


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return built(PROMTOOL)
    except BuildError as error:
        pytest.skip(str(error))


def test_promtool_finds_nothing_to_complain_of(program: Path) -> None:
    result = subprocess.run([program, "check", "rules", FILE], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{len(RULES)} rules found" in result.stdout


def test_every_question_of_the_dashboard_is_one_that_prometheus_understands(program: Path, tmp_path: Path) -> None:
    asked = [
        target["expr"]
        for panel in json.loads((CHART / "files/dashboard.json").read_text())["panels"]
        for target in panel.get("targets", [])
    ]
    filled = [re.sub(r"\$__\w+", "5m", expression) for expression in asked]
    rules = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(filled)]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    command: list[str | Path] = [program, "check", "rules", tmp_path / "rules.yaml"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{len(asked)} rules found" in result.stdout


def in_its_words(name: str, case: Case) -> dict[str, Any]:
    """A case as promtool's own test files have it."""
    rule = RULES[case.alert]
    fixed = {key: words for key, words in rule["annotations"].items() if "{{" not in words}
    told = {"exp_labels": rule["labels"] | (case.labels or {}), "exp_annotations": fixed | (case.words or {})}
    return {
        "name": name,
        "interval": "30s",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            {"alertname": case.alert, "eval_time": case.at, "exp_alerts": [told] if case.fires else []}
        ],
    }


@pytest.fixture(scope="module")
def verdicts(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What promtool has against each case: one run for all of them, in which a case works out no other alerts."""
    folder = tmp_path_factory.mktemp("alerts")
    for alert, rule in RULES.items():
        (folder / f"{alert}.rules").write_text(json.dumps({"groups": [{"name": alert, "rules": [rule]}]}))
        groups = [in_its_words(name, case) for name, case in CASES.items() if case.alert == alert]
        tests = {"rule_files": [f"{alert}.rules"], "evaluation_interval": "30s", "tests": groups}
        (folder / f"{alert}.cases").write_text(json.dumps(tests))
    command: list[str | Path] = [program, "test", "--junit=verdicts.xml", "rules", *sorted(folder.glob("*.cases"))]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert (folder / "verdicts.xml").exists(), result.stderr
    judged = ET.parse(folder / "verdicts.xml").iter("testcase")  # noqa: S314 - promtool's own
    return {case.attrib["name"]: "".join(case.itertext()) for case in judged}


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_in_these_words_and_is_silent_else(name: str, verdicts: dict[str, str]) -> None:
    assert verdicts[name] == ""


@pytest.mark.parametrize("alert", RULES)
def test_every_alert_is_seen_to_fire_and_to_be_silent(alert: str) -> None:
    assert {case.fires for case in CASES.values() if case.alert == alert} == {True, False}


def test_counters_are_there_at_zero_before_the_first_count_as_the_cases_have_them() -> None:
    """In a process of its own: this one may have counted."""
    shown = subprocess.run([sys.executable, "-c", SHOWN], check=True, capture_output=True, text=True).stdout
    zeros = {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
        if sample.value == 0
    }
    cases = [case for case in CASES.values() if case.fires]
    named = {series: series.partition("{") for case in cases for series in case.series if POD not in series}
    counters = {
        (name, frozenset(re.findall(r'(\w+)="(\w+)"', labels)) - GIVEN)
        for name, _, labels in named.values()
        if name.endswith("_total")
    }
    assert counters
    assert counters <= zeros
