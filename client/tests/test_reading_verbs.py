from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from ended import Oarlock
from fake_api import FakeApi

from oarlock import Client
from oarlock.report.tables import ATTEMPT_COLUMNS

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "attempt": 2,
    "restartCount": 1,
    "ranks": {"desired": 2, "ready": 2},
    "progress": {"step": 120, "totalSteps": 300, "loss": 0.25, "secondsPerStep": 1.5, "etaSeconds": 270},
}


def test_ls_shows_the_namespace_and_with_a_all_of_them(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status=RUNNING)
    api.add_job("lora", "team")
    code, out, _ = oarlock("ls")
    assert code == 0
    assert [line.split()[:5] for line in out.splitlines()[1:]] == [["flux", "Running", "2/2", "120/300", "1.5"]]
    out = oarlock("ls", "-A").out
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["default", "flux", "Running"],
        ["team", "lora", "Pending"],
    ]
    assert oarlock("ls", "--context", "other", "-o", "name").out == "lora\n"


def test_a_selector_is_the_servers_to_judge(api: FakeApi, oarlock: Oarlock) -> None:
    oarlock("ls", "-l", "team=a,tier in (x)")
    assert any("labelSelector=team%3Da%2Ctier+in+%28x%29" in path for _, path, _ in api.asked)


def test_json_yaml_and_lines_of_json_say_the_same(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status=RUNNING)
    listed = json.loads(oarlock("ls", "-o", "json").out)
    assert (listed["version"], listed["kind"]) == (1, "JobList")
    assert (listed["items"][0]["secondsPerStep"], listed["items"][0]["gpus"]) == (1.5, 16)
    assert yaml.safe_load(oarlock("ls", "-o", "yaml").out) == listed
    assert [json.loads(line) for line in oarlock("ls", "-o", "jsonl").out.splitlines()] == listed["items"]


@pytest.mark.parametrize(
    "status",
    [
        {"phase": 7, "progress": [1], "ranks": "two", "attempt": "first", "attempts": {}, "conditions": 3},
        {"phase": "Transcending", "progress": {"step": "many", "loss": "low"}, "new": {"field": 1}},
        None,
    ],
)
def test_a_status_of_another_release_breaks_neither_ls_nor_get_nor_the_model(
    api: FakeApi, oarlock: Oarlock, status: object
) -> None:
    api.add_job("flux", status=status)
    api.add_job("lora", status=RUNNING)
    assert "120/300" in oarlock("ls", "-o", "wide").out
    for verb in ("get", "faults", "events"):
        assert oarlock(verb, "flux").code == 0
    assert Client().job("flux").status.progress is None or Client().job("flux").status.progress.step is None


def test_the_model_keeps_all_of_a_status_but_what_it_cannot_read(api: FakeApi) -> None:
    attempts = [{"number": "one"}, {"number": 2, "endReason": "Application", "lostSteps": []}, {"reason": "Evicted"}]
    api.add_job("flux", status={**RUNNING, "attempts": attempts, "conditions": [{"type": "Running"}]})
    status = Client().job("flux").status
    assert status.progress
    assert status.progress.step == 120
    assert [(one.number, one.end_reason) for one in status.attempts] == [(2, "Application")]
    assert status.conditions == ()


def test_get_prints_the_whole_object_where_json_is_asked_for(api: FakeApi, oarlock: Oarlock) -> None:
    job = api.add_job("flux", status=RUNNING)
    assert json.loads(oarlock("get", "flux", "-o", "json").out) == job
    assert "120/300" in oarlock("get", "flux").out


def test_get_says_a_phase_once(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"phase": "Starting", "reason": "Starting"})
    assert "Phase:            Starting\n" in oarlock("get", "flux").out
    api.add_job("flux", status={"phase": "Starting", "reason": "Unschedulable"})
    assert "Starting (Unschedulable)\n" in oarlock("get", "flux").out


def test_spares_that_wait_stand_beside_the_nodes_that_train(api: FakeApi, oarlock: Oarlock) -> None:
    job = api.add_job("flux", status={**RUNNING, "ranks": {"ready": 2, "spares": 1}})
    job["spec"]["spares"] = 2
    assert " 2/2+1 " in oarlock("ls").out
    told = oarlock("get", "flux").out
    assert "Nodes:            2/2 ready, 16 GPUs\n" in told
    assert "Spares:           1/2 ready\n" in told
    assert json.loads(oarlock("ls", "-o", "json").out)["items"][0]["readySpares"] == 1


def test_get_says_nothing_of_spares_where_none_are_asked_for(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status=RUNNING)
    assert "Spares" not in oarlock("get", "flux").out


@pytest.mark.parametrize(
    ("held", "told"), [({"copied": True}, ", copied"), ({"copied": False}, ", not copied"), ({}, "")]
)
def test_get_tells_the_step_in_memory_its_age_and_whether_it_is_copied(
    api: FakeApi, oarlock: Oarlock, held: dict[str, bool], told: str
) -> None:
    two_days_ago = (datetime.now(UTC) - timedelta(days=2, minutes=5)).isoformat()
    api.add_job("flux", status={**RUNNING, "memory": {"step": 119, "saveTime": two_days_ago, **held}})
    assert f"In memory:        step 119, 2d ago{told}\n" in oarlock("get", "flux").out


def test_get_tells_of_each_attempt_why_it_started_and_what_ended_it_under_the_pages_headings(
    api: FakeApi, oarlock: Oarlock
) -> None:
    two_days_ago = (datetime.now(UTC) - timedelta(days=2, minutes=5)).isoformat()
    first = {
        "number": 1,
        "startTime": two_days_ago,
        "endTime": two_days_ago,
        "endReason": "Hang",
        "nodeNames": ["a", "b"],
    }
    second = {"number": 2, "startTime": two_days_ago, "reason": "Hang", "resumedFromStep": 400, "nodeNames": ["a"]}
    api.add_job("flux", status={**RUNNING, "attempts": [first, second]})
    head, *rows = oarlock("get", "flux").out.split("\n\n")[1].splitlines()
    titles = re.split(r"  +", head)
    assert [dict(zip(titles, re.split(r"  +", row), strict=True)) for row in rows] == [
        {
            "ATTEMPT": "1", "STARTED": "2d ago", "WHY IT STARTED": "-", "ENDED": "2d ago", "WHY IT ENDED": "Hang",
            "FROM STEP": "-", "NODES": "a,b",
        },
        {
            "ATTEMPT": "2", "STARTED": "2d ago", "WHY IT STARTED": "Hang", "ENDED": "-", "WHY IT ENDED": "-",
            "FROM STEP": "400", "NODES": "a",
        },
    ]  # fmt: skip
    assert set(titles) <= {name.removesuffix(" (UTC)").upper() for name in ATTEMPT_COLUMNS}


def test_an_events_name_is_that_of_its_object(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux")
    about = {"kind": "Pod", "name": "flux-1-0"}
    api.objects["/api/v1/namespaces/default/events/1"] = {"metadata": {}, "involvedObject": about, "reason": "Started"}
    assert oarlock("events", "flux", "-o", "name").out == "pod/flux-1-0\n"


def test_events_are_of_the_job_and_its_pods_alone(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux")
    for number, (kind, name) in enumerate(
        [
            ("Pod", "flux-1-0"),
            ("TrainingJob", "flux"),
            ("Pod", "flux-big-1-0"),
            ("TrainingJob", "flux-1"),
            ("Pod", "flux-1-1-0"),
            ("Pod", "flux-1-0-i2"),
        ]
    ):
        api.objects[f"/api/v1/namespaces/default/events/{number}"] = {
            "metadata": {},
            "involvedObject": {"kind": kind, "name": name},
            "lastTimestamp": f"2026-01-01T00:00:0{9 - number}Z",
            "reason": f"R{number}",
        }
    rows = [json.loads(line) for line in oarlock("events", "flux", "-o", "jsonl").out.splitlines()]
    assert [(row["about"], row["reason"]) for row in rows] == [
        ("pod/flux-1-0-i2", "R5"),
        ("trainingjob/flux", "R1"),
        ("pod/flux-1-0", "R0"),
    ]


def test_faults_name_the_gpu_and_the_node(api: FakeApi, oarlock: Oarlock) -> None:
    gpu = {"gpu": {"uuid": "GPU-5c"}, "xid": 79, "verdict": "ReplaceNode"}
    fault = {"time": "2026-01-01T00:00:00Z", "class": "GPU", "nodeName": "gpu-7", **gpu}
    strike = {"gpuUUID": "GPU-5c", "nodeName": "gpu-7", "count": 2, "lastTime": "2026-01-01T00:00:01Z"}
    api.add_job("flux", status={**RUNNING, "lastFault": fault, "strikes": [strike]})
    lines = oarlock("faults", "flux").out.splitlines()
    assert [line.split()[:5] for line in lines[1:]] == [
        ["gpu-7", "GPU-5c", "last", "fault", "79"],
        ["gpu-7", "GPU-5c", "strike", "-", "-"],
    ]
    assert "ReplaceNode" not in " ".join(lines), "words, not names of fields"
    assert "the node is to be taken out" in lines[1]
    rows = [json.loads(line) for line in oarlock("faults", "flux", "-o", "jsonl").out.splitlines()]
    assert [row["kind"] for row in rows] == ["LastFault", "Strike"], "programs get the names"


def test_nodes_tell_by_whom_and_why_they_are_cordoned(api: FakeApi, oarlock: Oarlock) -> None:
    mark = json.dumps({"job": "team/flux", "reason": "XID 79", "time": "2026-01-01T00:00:00Z"})
    ready = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    for name, spec, written in [
        ("gpu-1", {}, {}),
        ("gpu-2", {"unschedulable": True}, {"oarlock.dev/cordoned": mark}),
        ("gpu-3", {"unschedulable": True}, {"oarlock.dev/cordoned": "{"}),
    ]:
        metadata = {"name": name, "annotations": written}
        api.objects[f"/api/v1/nodes/{name}"] = {"metadata": metadata, "spec": spec, "status": ready}
    api.objects["/api/v1/nodes/cpu-1"] = {"metadata": {"name": "cpu-1"}, "spec": {}, "status": {}}
    rows = {row["name"]: row for row in json.loads(oarlock("nodes", "-o", "json").out)["items"]}
    assert sorted(rows) == ["gpu-1", "gpu-2", "gpu-3"]
    assert (rows["gpu-2"]["byOarlock"], rows["gpu-2"]["job"], rows["gpu-2"]["reason"]) == (True, "team/flux", "XID 79")
    oarlock("uncordon", "gpu-2")
    given_back = api.objects["/api/v1/nodes/gpu-2"]
    assert "unschedulable" not in given_back["spec"]
    assert "oarlock.dev/given-back" in given_back["metadata"]["annotations"]


def test_top_into_a_pipe_prints_once_and_only_what_runs(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status=RUNNING)
    api.add_job("old", status={"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"})
    out = oarlock("top").out
    assert "0.25" in out
    assert "old" not in out
