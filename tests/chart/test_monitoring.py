"""Alerts and dashboard ask for metrics that are there, and every alert has its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from oarlock_api.contract.exit_codes import FailureClass
from oarlock_api.contract.health import Health, HealthState
from oarlock_api.contract.status import PodPhase, PodStatus
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import Phase
from oarlock_operator import metrics
from oarlock_operator.manifests.pod import pod
from oarlock_operator.model.observation import Job
from oarlock_trainer.agent.status.metrics import exposition
from tests.chart.rendering import CHART, EVERYTHING, ROOT, one, render

RUNBOOKS = ROOT / "docs/runbooks"
DASHBOARD = json.loads((CHART / "files/dashboard.json").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
    **{f"{panel['title']} {t['refId']}": t["expr"] for panel in PANELS for t in panel["targets"]},
}
VALUES = {
    "phase": {*Phase, *PodPhase},
    "fault_class": set(FailureClass),
    "state": set(HealthState),
    "result": {"ok", "conflict", "error", "bug"},
    "budget": {"application", "infrastructure", "voluntary"},
    "verdict": {"RestartProcess", "ReplaceNode"},
}
"""What labels may say."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def exported() -> dict[str, set[str]]:
    """Series by name, each with its labels."""
    found = {}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            described = next(iter(metric.describe()))
            for suffix in SUFFIXES[described.type]:
                own = {*metric._labelnames, *({"le"} if suffix == "_bucket" else ())}
                # The job is the name that the monitor gives to what it reads.
                found[described.name + suffix] = {*own, "job"}
    status = PodStatus(
        job_uid="j",
        pod_uid="p",
        attempt=1,
        rank=0,
        phase=PodPhase.TRAINING,
        heartbeat_at="2026-01-01T00:00:00Z",
        step_seconds={"forward": 1.0},
    )
    text = exposition("flux", status).decode()
    for name in re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE):
        sample = re.search(rf"^{name}{{(.*)}}", text, re.MULTILINE)
        labels = set(re.findall(r'(\w+)="', sample[1])) if sample else {"training_job", "rank"}
        # The namespace is a label that Prometheus gives to what it finds in a pod.
        found[name] = {*labels, "namespace"}
    return found


SERIES = exported()


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_asks_for_series_labels_and_values_that_there_are(where: str) -> None:
    expression = EXPRESSIONS[where]
    asked = re.findall(r"(oarlock_\w+)(?:{([^}]*)})?", expression)
    assert asked
    for name, selector in asked:
        matchers = re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector)
        assert {label for label, _, _ in matchers} <= SERIES[name], name
        for label, _, said in matchers:
            if label in VALUES and "$" not in said:
                assert set(said.split("|")) <= VALUES[label], f"{name}{{{label}}}"
    grouped = {label for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in by.split(", ")}
    assert grouped <= set().union(*(SERIES[name] for name, _ in asked))


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_its_page_and_says_how_bad_it_is(rule: dict[str, Any]) -> None:
    page = ROOT / rule["annotations"]["runbook_url"]
    assert rule["alert"] in page.read_text(), "the page names its alert, so that it is found by it"
    assert page.name in (RUNBOOKS / "README.md").read_text()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_page_has_its_alert() -> None:
    pages = {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}
    assert pages == {Path(rule["annotations"]["runbook_url"]).name for rule in ALERTS}


def test_rules_and_dashboard_are_rendered_as_they_are_with_pages_where_the_site_has_them(helm_program: Path) -> None:
    objects = render(helm_program, EVERYTHING)
    rendered = [rule for group in one(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert [rule["expr"] for rule in rendered] == [rule["expr"] for rule in ALERTS]
    assert "{{ $labels.training_job }}" in json.dumps(rendered)
    assert rendered[0]["annotations"]["runbook_url"] == "https://docs.example.com/operator-down.html"
    held = one(objects, "ConfigMap", "oarlock-dashboard")
    assert json.loads(held["data"]["oarlock.json"]) == DASHBOARD
    assert held["metadata"]["labels"]["example.com/dashboards"] == "ours"


def test_panels_stand_beside_each_other() -> None:
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(("kind", "field"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")])
def test_the_namespace_of_a_metric_stays_the_jobs(kind: str, field: str, helm_program: Path) -> None:
    """Prometheus calls the namespace of what it scrapes by the same name, and would put the operator's in its place."""
    monitor = one(render(helm_program, {"monitoring": {"operator": kind}}), kind)
    assert "namespace" in SERIES["oarlock_job_phase"]
    assert [endpoint["honorLabels"] for endpoint in monitor["spec"][field]] == [True]


def pod_of_a_job() -> dict[str, Any]:
    """Rank 0's, as the operator makes it."""
    spec = TrainingJobSpec.model_validate(
        {
            "output": {"persistentVolumeClaim": {"claimName": "output"}},
            "custom": {"command": ["true"]},
            "pod": {"image": "trainer:1"},
        }
    )
    seen = Job(namespace="a", name="flux", uid="uid", generation=1, spec=spec)
    return pod(seen, spec, attempt=1, rank=0, image="trainer:1")


def relabelled(rules: list[dict[str, Any]], labels: dict[str, str]) -> dict[str, str] | None:
    """What Prometheus makes of labels by those rules, as far as they are used here; None where it drops the sample."""
    for rule in rules:
        value = ";".join(labels.get(name, "") for name in rule.get("sourceLabels", ()))
        match rule["action"]:
            case "replace":
                labels = {**labels, rule["targetLabel"]: rule.get("replacement", value)}
            case "keep" if not re.fullmatch(rule["regex"], value):
                return None
            case "labeldrop":
                labels = {name: said for name, said in labels.items() if not re.fullmatch(rule["regex"], name)}
    return labels


def scraped(endpoint: dict[str, Any], pod: dict[str, str], sample: dict[str, str]) -> dict[str, str] | None:
    """A sample of a pod as Prometheus keeps it without honorLabels: the target's labels win, the sample's are set aside."""
    target = relabelled(endpoint["relabelings"], pod) or {}
    given = {name: value for name, value in target.items() if not name.startswith("__meta_")}
    aside = {f"exported_{name}" if name in given else name: value for name, value in sample.items()}
    return relabelled(endpoint["metricRelabelings"], {**aside, **given})


def test_a_training_pod_speaks_of_itself_alone_whatever_it_exports(helm_program: Path) -> None:
    """Anybody who may make pods may label one as a job's, and a monitor reads it then."""
    spec = one(render(helm_program, {"monitoring": {"jobs": True}}), "PodMonitor", "oarlock-jobs")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    labels = pod_of_a_job()["metadata"]["labels"]
    meta = {"__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", name): value for name, value in labels.items()}
    pod = {**meta, "namespace": "a", "pod": "flux-1-0", "job": "oarlock/oarlock-jobs"}
    own = {"namespace": "a", "pod": "flux-1-0", "job": "oarlock/oarlock-jobs", "training_job": "flux", "rank": "0"}
    assert endpoint["honorLabels"] is False
    for name in SERIES:
        kept = scraped(endpoint, pod, {"__name__": name, "namespace": "b", "training_job": "other", "rank": "7"})
        assert kept == ({"__name__": name, **own} if name.startswith("oarlock_trainer_") else None)
    assert scraped(endpoint, pod, {"__name__": "up"}) is None


def test_what_an_agent_exports_stays_far_below_the_limits_that_a_pod_has(helm_program: Path) -> None:
    spec = one(render(helm_program, {"monitoring": {"jobs": True}}), "PodMonitor", "oarlock-jobs")["spec"]
    probes = {f"{number}-probe": True for number in range(40)}
    parts = {f"{number}-part": 1.0 for number in range(40)}
    status = PodStatus(
        job_uid="j",
        pod_uid="p",
        attempt=1,
        rank=0,
        phase=PodPhase.TRAINING,
        heartbeat_at="2026-01-01T00:00:00Z",
        step_seconds=parts,
        health=Health(probes=probes),
    )
    lines = [line for line in exposition("flux", status).decode().splitlines() if not line.startswith("#")]
    assert 2 * len(lines) < spec["sampleLimit"]
    target = {"namespace", "pod", "container", "endpoint", "instance", "job", "training_job", "rank", "__name__"}
    labels = {name for line in lines for name in re.findall(r'(\w+)="', line)}
    assert len(labels | target) < spec["labelLimit"]
    assert max(map(len, [*SERIES, *labels])) < spec["labelValueLengthLimit"]


@pytest.mark.parametrize(("kind", "field"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")])
def test_alerts_ask_the_operators_series_of_the_operator_that_the_monitor_names(
    kind: str, field: str, helm_program: Path
) -> None:
    """A pod that another monitor reads may export them too."""
    values = {"monitoring": {"operator": kind, "rules": {"enabled": True}}}
    objects = render(helm_program, values, release="second")
    (endpoint,) = one(objects, kind)["spec"][field]
    named = relabelled(endpoint["relabelings"], {"job": "any"})
    assert named == {"job": "oarlock/second-operator"}
    rules = [rule for group in one(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    asked = [found for rule in rules for found in re.findall(r"\b(oarlock_\w+)(?:{([^}]*)})?", rule["expr"])]
    assert len(asked) > len(rules) / 2
    for name, selector in asked:
        if not name.startswith("oarlock_trainer_"):
            assert 'job="oarlock/second-operator"' in selector.split(", "), name


def test_monitors_find_the_operators_and_the_jobs_pods(helm_program: Path) -> None:
    values = {"monitoring": {"operator": "PodMonitor", "jobs": True}}
    objects = render(helm_program, values)
    template = one(objects, "Deployment")["spec"]["template"]
    monitor = one(objects, "PodMonitor", "oarlock-operator")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} == ports
    jobs = one(objects, "PodMonitor", "oarlock-jobs")["spec"]
    assert jobs["namespaceSelector"] == {"any": True}
    trained = pod_of_a_job()
    assert {each["key"] for each in jobs["selector"]["matchExpressions"]} <= trained["metadata"]["labels"].keys()
    named = {port["name"] for port in trained["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in jobs["podMetricsEndpoints"]} <= named
    here = render(helm_program, {**values, "namespaces": ["a"]})
    assert one(here, "PodMonitor", "oarlock-jobs")["spec"]["namespaceSelector"] == {"matchNames": ["a"]}
