from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ended import Oarlock
from fake_api import JOBS, FakeApi

from oarlock import Client, Job, JobNotRunningError, NotNowError, WaitTimeoutError
from oarlock_api.manifest import load
from oarlock_api.trainingjob import TrainingJob

EXAMPLE = Path(__file__).parents[2] / "examples/trainingjob.yaml"


def spec(api: FakeApi, name: str = "flux") -> dict[str, Any]:
    found: dict[str, Any] = api.objects[f"{JOBS.format('default')}/{name}"]["spec"]
    return found


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"phase": "Succeeded"}, 0),
        ({"phase": "Failed", "message": "no data"}, 1),
        ({"phase": "Running"}, 2),
        ({"phase": "Suspended"}, 3),
    ],
)
def test_wait_ends_with_a_code_for_each_end(api: FakeApi, oarlock: Oarlock, status: dict[str, Any], code: int) -> None:
    api.add_job("flux", status=status)["spec"]["suspend"] = status["phase"] == "Suspended"
    assert oarlock("wait", "flux", "--timeout", "0").code == code


def test_wait_says_what_has_changed_once(api: FakeApi, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oarlock.job.LOOK_SECONDS", 0)
    job = api.add_job("flux")
    looks = iter({"phase": "Starting", "ranks": {"ready": ready}} for ready in (0, 1, 2))

    def before(*_: object) -> None:
        job["status"] = next(looks, {"phase": "Succeeded"})

    api.before = before
    assert oarlock("wait", "flux").err == "flux: Starting\nflux: Succeeded\n"


def test_a_job_that_is_deleted_while_it_is_waited_for_is_told(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running"})
    with pytest.raises(JobNotRunningError, match="deleted"):
        Client().job("flux").wait(sleep=lambda _: api.objects.clear())


def test_a_job_that_takes_a_deleted_ones_name_is_not_waited_for(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running"})

    def anew(_: float) -> None:
        api.add_job("flux", status={"phase": "Succeeded"})["metadata"]["uid"] = "another"

    with pytest.raises(JobNotRunningError, match="another"):
        Client().job("flux").wait(sleep=anew)


def test_submit_applies_by_kubectls_numbers_into_the_namespace(api: FakeApi, oarlock: Oarlock) -> None:
    assert oarlock("submit", "-f", str(EXAMPLE), "-n", "team").code == 0
    job = api.objects[f"{JOBS.format('team')}/flux"]
    assert job["metadata"]["namespace"] == "team"
    assert job["spec"]["training"]["optimizer"]["learningRate"] == 0.001


def test_a_dry_run_prints_and_makes_nothing(api: FakeApi, oarlock: Oarlock) -> None:
    ended = oarlock("submit", "-f", str(EXAMPLE), "--dry-run")
    assert yaml.safe_load(ended.out)["metadata"]["name"] == "flux"
    assert "dryRun=All" in api.asked[-1][1]
    assert "/api/v1/namespaces/default" in api.objects
    assert len(api.objects) == 1


UNKNOWN = (
    "failed to create typed patch object (default/flux; ...): .spec.training.batchsize: field not declared in schema"
)


def misspelled(tmp_path: Path) -> str:
    job = yaml.safe_load(EXAMPLE.read_text())
    job["spec"]["training"]["batchsize"] = 2
    job["spec"]["node"] = 3
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    return str(path)


def test_each_misspelled_field_is_told_with_the_one_that_was_meant(
    api: FakeApi, oarlock: Oarlock, tmp_path: Path
) -> None:
    api.before = lambda *_: (400, UNKNOWN)
    ended = oarlock("submit", "-f", misspelled(tmp_path))
    no_such = "there is no such field; did you mean"
    meant = {f"spec.training.batchsize: {no_such} batchSize?", f"spec.node: {no_such} nodes?"}
    assert ended.code == 7
    said, *sentences = ended.err.strip().split(". spec.")
    assert said == f"oarlock: {UNKNOWN}"
    assert {f"spec.{one}".rstrip(".") for one in sentences} == meant


def test_a_job_that_is_refused_for_something_else_is_told_that_alone(
    api: FakeApi, oarlock: Oarlock, tmp_path: Path
) -> None:
    api.before = lambda *_: (422, "nodes may not change while the job is active")
    assert (
        oarlock("submit", "-f", misspelled(tmp_path)).err == "oarlock: nodes may not change while the job is active\n"
    )


def test_a_job_that_is_deleted_before_the_submitter_looks_again_is_3_as_of_wait(api: FakeApi, oarlock: Oarlock) -> None:
    path = f"{JOBS.format('default')}/flux"
    api.before = lambda method, asked, _: (404, "not found") if (method, asked) == ("GET", path) else None
    ended = oarlock("submit", "-f", str(EXAMPLE), "--wait")
    assert ended.code == 3
    assert "was deleted" in ended.err


def test_a_timeout_with_follow_is_refused_and_nothing_is_made(api: FakeApi, oarlock: Oarlock) -> None:
    assert oarlock("submit", "-f", str(EXAMPLE), "--follow", "--timeout", "5").code == 64
    assert api.asked == []


def test_the_models_are_submitted_as_they_are(api: FakeApi) -> None:
    job = TrainingJob.model_validate(load(EXAMPLE.read_text()))
    Client().submit(job)
    assert spec(api)["training"]["steps"] == 200


@pytest.mark.usefixtures("api")
def test_what_is_no_training_job_is_refused(oarlock: Oarlock, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for text, code in [("kind: Pod\napiVersion: v1\n", 7), ("a: [", 7), ("", 7), ("- 1\n", 7)]:
        file.write_text(text)
        assert oarlock("submit", "-f", str(file)).code == code
    assert oarlock("submit", "-f", str(tmp_path / "none.yaml")).code == 4


def test_suspend_and_resume_say_so_in_the_spec(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_job("flux", status={"phase": "Running"})
    oarlock("suspend", "flux")
    assert spec(api)["suspend"] is True
    oarlock("resume", "flux")
    assert spec(api)["suspend"] is False


def test_resize_waits_until_no_pod_runs(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    seen = []

    def left(_: float) -> None:
        seen.append(dict(job["spec"]))
        job["status"] = {"phase": "Suspended"}

    Client().job("flux").resize(4, sleep=left)
    assert seen == [{"nodes": 2, "gpusPerNode": 8, "suspend": True}]
    assert spec(api) == {"nodes": 4, "gpusPerNode": 8, "suspend": False}


def test_a_job_that_has_ended_is_not_resized(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"})
    with pytest.raises(NotNowError, match="delete it and submit"):
        Client().job("flux").resize(4)


def test_stop_deletes_only_what_has_left_its_nodes(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Running", "latestCheckpoint": {"step": 40}})
    with pytest.raises(WaitTimeoutError):
        Client().job("flux").stop(timeout=0)
    assert api.objects

    def left(_: float) -> None:
        job["status"] = {"phase": "Suspended", "latestCheckpoint": {"step": 43}}

    assert Client().job("flux").stop(sleep=left) == 43
    assert "/api/v1/namespaces/default" in api.objects
    assert len(api.objects) == 1


def test_save_asks_by_an_annotation_and_returns_the_answer_to_this_very_request(api: FakeApi) -> None:
    stale = {"id": "old", "state": "Done", "step": 1}
    job = api.add_job("flux", status={"phase": "Running", "request": stale})

    def served(_: float) -> None:
        verb, name = job["metadata"]["annotations"]["oarlock.dev/request"].split()
        assert verb == "save"
        job["status"]["request"] = {"id": name, "state": "Done", "step": 41, "seconds": 2.5}

    assert Client().job("flux").save(sleep=served)["step"] == 41


@pytest.mark.parametrize(
    ("verb", "state", "words"),
    [
        ("save", "Refused", "flux: the save was refused: it does not train"),
        ("drill", "Failed", "flux: the drill failed: it does not train"),
        ("stacks", "Refused", "flux: the request for stacks was refused: it does not train"),
    ],
)
def test_a_request_that_comes_to_nothing_is_told_in_the_operators_words(
    api: FakeApi, verb: str, state: str, words: str
) -> None:
    job = api.add_job("flux", status={"phase": "Queued"})

    def answered(_: float) -> None:
        _, name = job["metadata"]["annotations"]["oarlock.dev/request"].split()
        job["status"]["request"] = {"id": name, "verb": verb, "state": state, "message": "it does not train"}

    with pytest.raises(NotNowError) as told:
        getattr(Client().job("flux"), verb)(sleep=answered)
    assert str(told.value) == words


def test_metrics_are_all_steps_of_an_output_and_else_the_curve_of_the_status(api: FakeApi, tmp_path: Path) -> None:
    api.add_job("flux", status={"attempt": 1, "progress": {"step": 3, "loss": 0.5}})
    job = Client().job("flux")
    assert job.metrics() == [{"step": 3, "loss": 0.5, "secondsPerStep": None}]
    curve = [{"step": 1, "loss": 0.75, "secondsPerStep": 4.0}, {"step": 3, "loss": 0.5, "secondsPerStep": 4.0}]
    api.add_job("flux", status={"attempt": 1, "progress": {"step": 3, "loss": 0.5}, "curve": curve})
    assert job.metrics() == curve
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1}) + "\n" + json.dumps({"step": 2}) + '\n{"st')
    assert job.metrics(tmp_path) == [{"step": 1}, {"step": 2}]


def test_a_save_that_gives_way_to_stacks_is_not_waited_for(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Running"})

    def operator(_: float) -> None:
        _, name = job["metadata"]["annotations"]["oarlock.dev/request"].split()
        first = "request" not in job["status"]
        job["status"]["request"] = {"id": name if first else "other", "verb": "stacks", "state": "Asked"}

    with pytest.raises(NotNowError, match="was asked for stacks meanwhile"):
        Client().job("flux").save(timeout=5, sleep=operator)


def taken(rank: int, request: str, text: str) -> str:
    told = {"message": f"stacks of rank {rank}", "stacks": text, "request": request, "ofRank": rank}
    return f"2026-01-01T00:00:01Z {json.dumps(told)}\n"


def answered_stacks(api: FakeApi) -> Callable[[float], None]:
    """A gang of two pods with a rank each, which answers the request at the first look."""
    job = api.add_job("flux", status={"phase": "Running", "attempt": 1})

    def served(_: float) -> None:
        verb, name = job["metadata"]["annotations"]["oarlock.dev/request"].split()
        assert verb == "stacks"
        other = taken(1, "before", "of another request") + f"2026-01-01T00:00:01Z about {name}, and no JSON\n"
        api.add_pod("flux", 1, 0, taken(0, name, "Thread 0x1:\n  File a"))
        api.add_pod("flux", 1, 1, other + taken(1, name, "Thread 0x2:\n  File b"))
        job["status"]["request"] = {"id": name, "state": "Done", "attempt": 1}

    return served


def test_stacks_are_those_of_this_very_request_by_rank(api: FakeApi) -> None:
    found = Client().job("flux").stacks(sleep=answered_stacks(api))
    assert [(one.rank, one.pod, one.stacks) for one in found] == [
        (0, "flux-1-0", "Thread 0x1:\n  File a"),
        (1, "flux-1-1", "Thread 0x2:\n  File b"),
    ]


def test_the_verb_prints_the_stacks_of_all_ranks_or_of_one(
    api: FakeApi, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Job.stacks.__kwdefaults__, "sleep", answered_stacks(api))  # type: ignore[arg-type]
    assert oarlock("stacks", "flux", "--rank", "1").out == "rank 1, in flux-1-1:\nThread 0x2:\n  File b\n"
    assert oarlock("stacks", "flux").out.count("rank ") == 2
    nobody = oarlock("stacks", "flux", "--rank", "7")
    assert (nobody.code, nobody.out) == (4, "")
    assert "no stacks of rank 7" in nobody.err
