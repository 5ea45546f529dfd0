"""Suspend, resume, resize, stop and delete, where the job, its names or the API server are not as they were thought to be."""

from __future__ import annotations

from typing import Any

import pytest
from ended import Oarlock
from fake_api import JOBS, FakeApi

from oarlock import Client, JobFailedError, NotFoundError, NotNowError, RefusedError, WaitTimeoutError
from oarlock.cluster import connect
from oarlock.job import Job

ENDED = {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}
PATH = f"{JOBS.format('default')}/flux"


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "%2F", "flux?x", "Flux", "a" * 254, "-a", "flux\n"])
def test_what_is_no_name_is_refused_before_anything_is_asked(api: FakeApi, oarlock: Oarlock, name: str) -> None:
    api.add_job("flux")
    for ask in (
        lambda: Client().job(name).delete(),
        lambda: Client().job("flux", namespace=name or ".").delete(),
        lambda: Client(namespace=name or ".").ls(),
        lambda: Client().uncordon(name),
    ):
        with pytest.raises(RefusedError, match="is no name of a"):
            ask()
    assert oarlock("delete", "--", name).code == 7
    assert api.asked == []


@pytest.mark.parametrize("path", ["", "/", "/.", "/..", "/%2F", "/flux/", "/flux?x=1", "/flux/status"])
def test_only_one_object_is_ever_deleted(api: FakeApi, path: str) -> None:
    with pytest.raises(RefusedError, match="nothing was deleted"):
        connect().delete(JOBS.format("default") + path, {})
    with pytest.raises(RefusedError, match="nothing was deleted"):
        connect().delete("/apis/oarlock.dev/v1alpha1/trainingjobs", {})
    assert api.asked == []


def test_a_job_that_ends_while_it_saves_is_not_resized(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    with pytest.raises(NotNowError, match="has ended"):
        Client().job("flux").resize(4, sleep=lambda _: job.update(status=ENDED))
    assert job["spec"]["nodes"] == 2


@pytest.mark.parametrize("status", [422, 403])
def test_a_job_whose_new_size_is_refused_goes_on_with_its_old_one(api: FakeApi, status: int) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    api.before = lambda method, _, body: (status, "too many") if method == "PATCH" and "nodes" in body["spec"] else None
    with pytest.raises(Exception, match=r"too many.*; it goes on with its old size"):
        Client().job("flux").resize(99, sleep=lambda _: job.update(status={"phase": "Suspended"}))
    assert job["spec"] == {"nodes": 2, "gpusPerNode": 8, "suspend": False}


def test_a_suspended_job_is_resized_once_its_pods_have_left(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    job["spec"]["suspend"] = True
    seen = []

    def left(_: float) -> None:
        seen.append(dict(job["spec"]))
        job["status"] = {"phase": "Suspended"}

    Client().job("flux").resize(4, sleep=left)
    assert seen == [{"nodes": 2, "gpusPerNode": 8, "suspend": True}]
    assert job["spec"] == {"nodes": 4, "gpusPerNode": 8, "suspend": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resize", "flux", "--nodes", "4"], "stays suspended, of its old size"),
        (["stop", "flux"], "stays suspended: stop it again"),
        (["wait", "flux"], "it goes on by itself"),
    ],
)
def test_who_waits_no_longer_hears_what_becomes_of_the_job(
    api: FakeApi, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    api.add_job("flux", status={"phase": "Running"})
    ended = oarlock(*arguments, "--timeout", "0")
    assert (ended.code, words in ended.err) == (2, True)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, arguments[0], interrupted)
    ended = oarlock(*arguments)
    assert (ended.code, words in ended.err) == (130, True)


def test_stop_and_delete_name_the_very_object_that_they_saw(api: FakeApi) -> None:
    for verb, same in (("delete", {"uid"}), ("stop", {"uid", "resourceVersion"})):
        api.add_job("flux", status=ENDED)["metadata"]["resourceVersion"] = "7"
        getattr(Client().job("flux"), verb)()
        assert set(api.asked[-1][2]["preconditions"]) == same
        assert api.asked[-1][2]["propagationPolicy"] == "Background"


@pytest.mark.parametrize("status", [ENDED, {"phase": "Running"}])
def test_stop_leaves_another_job_of_its_name_alone(api: FakeApi, status: dict[str, Any]) -> None:
    api.add_job("flux", status=status)
    with pytest.raises(NotFoundError, match="another job has its name now"):
        Job(connect(), "flux", "default", metadata={"uid": "the one before"}).stop()
    assert {method for method, _, _ in api.asked} == {"GET"}


def test_a_job_that_is_resumed_just_before_stop_deletes_it_stays(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Suspended"})
    job["metadata"]["resourceVersion"] = "7"

    def resumed(method: str, _: str, __: Any) -> None:
        if method == "DELETE":
            job["spec"]["suspend"] = False
            job["metadata"]["resourceVersion"] = "8"

    api.before = resumed
    with pytest.raises(NotNowError, match="somebody has resumed"):
        Client().job("flux").stop()
    assert PATH in api.objects


def test_a_status_written_between_look_and_deletion_does_not_keep_a_job_from_being_stopped(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Suspended"})
    versions = iter("89")

    def written(method: str, _: str, __: Any) -> None:
        if method == "DELETE":
            job["metadata"]["resourceVersion"] = next(versions, "9")

    job["metadata"]["resourceVersion"] = "7"
    api.before = written
    Client().job("flux").stop()
    assert PATH not in api.objects


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_job_that_has_ended_is_neither_suspended_nor_resumed(api: FakeApi, oarlock: Oarlock, verb: str) -> None:
    api.add_job("flux", status=ENDED)
    ended = oarlock(verb, "flux")
    assert (ended.code, ended.out) == (8, "")
    assert "has ended" in ended.err


def test_a_job_that_was_just_resumed_is_waited_for(api: FakeApi) -> None:
    job = api.add_job("flux", status={"phase": "Suspended"})
    job["spec"]["suspend"] = False
    assert Client().job("flux").wait(sleep=lambda _: job.update(status=ENDED)).phase == "Succeeded"


def test_a_job_that_has_failed_is_explained_by_why(api: FakeApi) -> None:
    api.add_job("flux", status={**ENDED, "phase": "Failed", "message": "no data"})
    with pytest.raises(JobFailedError, match="`oarlock why flux` says more"):
        Client().job("flux").wait()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hiccup_of_the_api_server_ends_no_waiting(
    api: FakeApi, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    job = api.add_job("flux", status={"phase": "Running"})
    slept = []

    def later(seconds: float) -> None:
        slept.append(seconds)
        api.refusals = {PATH: (status, "in a moment")} if len(slept) < 4 else {}
        if len(slept) == 5:
            job["status"] = ENDED

    assert Client().job("flux").wait(sleep=later).phase == "Succeeded"
    assert slept == [1, 1, 2, 4, 1]
    assert "in a moment; asked again in 4 s" in caplog.text


def test_the_patience_with_an_api_server_has_an_end(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running"})
    slept = []

    def never(seconds: float) -> None:
        slept.append(seconds)
        api.refusals = {PATH: (503, "etcd is gone")}

    with pytest.raises(RefusedError, match="etcd is gone"):
        Client().job("flux").wait(sleep=never)
    assert 300 <= sum(slept) < 400
    api.refusals = {}
    slept.clear()

    def over(_: float) -> None:
        api.refusals = {PATH: (503, "etcd is gone")}

    with pytest.raises(WaitTimeoutError, match="goes on by itself"):
        Client().job("flux").wait(0.05, sleep=over)


def test_what_is_no_hiccup_ends_the_waiting_at_once(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running"})
    with pytest.raises(RefusedError, match="no"):
        Client().job("flux").wait(sleep=lambda _: api.refusals.update({PATH: (422, "no")}))
    with pytest.raises(RefusedError):
        Client().job("flux").wait()
