"""What the watch saw of pods that ended is kept, bounded, and only of those."""

from __future__ import annotations

from typing import Any

import msgspec

from oarlock_operator.pods.pod_facts import Metadata, RawPod
from oarlock_operator.pods.pod_program import Annotations
from oarlock_operator.pods.terminated_pods import TerminatedPods


def raw(
    uid: str, job: str = "job-1", *, namespace: str = "default", labels: dict[str, str] | None = None, **state: Any
) -> RawPod:
    statuses = [{"name": "trainer", "state": state}] if state else []
    written = {
        "metadata": {
            "name": f"pod-{uid}",
            "namespace": namespace,
            "uid": uid,
            "labels": {**(labels or {}), "oarlock.dev/job": f"name-of-{job}", "oarlock.dev/job-uid": job},
        },
        "status": {"containerStatuses": statuses},
    }
    return msgspec.convert(written, RawPod)


ENDED = {"terminated": {"exitCode": 1}}


def test_a_pod_that_ended_or_was_deleted_is_remembered_and_one_that_lives_is_not() -> None:
    terminated = TerminatedPods()
    terminated.note(raw("ended", **ENDED), deleted=False)
    terminated.note(raw("deleted"), deleted=True)
    terminated.note(raw("running", running={}), deleted=False)
    terminated.note(raw("new"), deleted=False)
    assert [pod.metadata.uid for pod in terminated.departed("default", "job-1", alive=set())] == ["ended", "deleted"]


def test_a_pod_that_its_kubelet_refused_has_ended_though_no_container_ran() -> None:
    refused = raw("refused")
    refused = msgspec.structs.replace(refused, status=msgspec.structs.replace(refused.status, phase="Failed"))
    assert TerminatedPods().note(refused, deleted=False)


def test_the_last_words_replace_the_earlier_ones() -> None:
    terminated = TerminatedPods()
    terminated.note(raw("a", **ENDED), deleted=False)
    last = raw("a", terminated={"exitCode": 80})
    terminated.note(last, deleted=True)
    kept = terminated.departed("default", "job-1", alive=set())
    assert [pod.status for pod in kept] == [last.status]


def test_what_a_job_asks_for_and_forgets_is_its_own_whoever_copies_its_labels() -> None:
    terminated = TerminatedPods()
    mine, copied = raw("mine", **ENDED), raw("copied", **ENDED)
    elsewhere = msgspec.structs.replace(copied.metadata, namespace="elsewhere")
    terminated.note(msgspec.structs.replace(copied, metadata=elsewhere), deleted=False)
    terminated.note(mine, deleted=False)
    terminated.note(mine, deleted=True)
    assert [pod.metadata.uid for pod in terminated.departed("default", "job-1", alive=set())] == ["mine"]
    terminated.forget("default", "name-of-job-1")
    assert terminated.departed("default", "job-1", alive=set()) == []
    assert [pod.metadata.uid for pod in terminated.departed("elsewhere", "job-1", alive=set())] == ["copied"]


def test_an_end_is_news_once() -> None:
    terminated = TerminatedPods()
    assert not terminated.note(raw("a", running={}), deleted=False)
    assert terminated.note(raw("a", **ENDED), deleted=False)
    assert not terminated.note(raw("a", **ENDED), deleted=True)


def test_a_pod_that_is_still_there_has_not_departed() -> None:
    terminated = TerminatedPods()
    terminated.note(raw("a", **ENDED), deleted=False)
    assert terminated.departed("default", "job-1", alive={"a"}) == []
    assert len(terminated.departed("default", "job-1", alive=set())) == 1


def test_a_job_sees_only_its_own_pods_and_forgets_only_those() -> None:
    terminated = TerminatedPods()
    terminated.note(raw("a"), deleted=True)
    terminated.note(raw("b", job="job-2"), deleted=True)
    terminated.note(RawPod(Metadata(name="x", uid="x")), deleted=True)
    terminated.forget("default", "name-of-job-1")
    assert terminated.departed("default", "job-1", alive=set()) == []
    assert [pod.metadata.uid for pod in terminated.departed("default", "job-2", alive=set())] == ["b"]


def test_beyond_the_limit_the_pod_that_was_not_heard_of_for_longest_is_forgotten() -> None:
    terminated = TerminatedPods(limit=3)
    for uid in ("a", "b", "c", "a", "d"):
        terminated.note(raw(uid), deleted=True)
    assert [pod.metadata.uid for pod in terminated.departed("default", "job-1", alive=set())] == ["c", "a", "d"]


def test_one_namespace_s_pods_push_out_none_of_another() -> None:
    terminated = TerminatedPods(limit=4)
    terminated.note(raw("mine", job="job-2", namespace="quiet"), deleted=True)
    for uid in range(50):
        terminated.note(raw(f"noise-{uid}"), deleted=True)
    assert [pod.metadata.uid for pod in terminated.departed("quiet", "job-2", alive=set())] == ["mine"]
    assert len(terminated.departed("default", "job-1", alive=set())) == 3


def test_of_a_pod_only_what_its_end_is_judged_by_is_kept() -> None:
    terminated = TerminatedPods()
    fat = raw("a", labels={"x": "y" * 100_000})
    avoided = Annotations(avoided=frozenset({"n" * 100_000}))
    fat = msgspec.structs.replace(fat, metadata=msgspec.structs.replace(fat.metadata, annotations=avoided))
    terminated.note(fat, deleted=True)
    (kept,) = terminated.departed("default", "job-1", alive=set())
    assert len(msgspec.json.encode(kept)) < 2_000


def test_the_first_bad_end_is_timed_by_our_own_clock_and_not_by_the_pods() -> None:
    now = 100.0
    terminated = TerminatedPods(limit=2, clock=lambda: now)
    assert terminated.seconds_since_the_first(["a", "b"]) is None
    terminated.note(raw("a", **ENDED), deleted=False)
    now = 100.5
    terminated.note(raw("b", **ENDED), deleted=False)
    terminated.note(raw("a", **ENDED), deleted=True)
    assert terminated.seconds_since_the_first(["a", "b"]) == 0.5
    assert terminated.seconds_since_the_first(["b", "c"]) == 0.0
    terminated.note(raw("c", **ENDED), deleted=False)
    assert terminated.seconds_since_the_first(["b"]) is None, "the oldest is forgotten with all that is known of it"
    terminated.forget("default", "name-of-job-1")
    assert terminated.seconds_since_the_first(["a", "c"]) is None
