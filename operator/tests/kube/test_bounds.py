"""What a tenant writes is as deep or as large as it likes, and costs nobody but its own job anything."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from jobs import spec
from structlog.testing import capture_logs

from oarlock_api.bounds import MOST_BYTES, MOST_LEVELS
from oarlock_api.contract.names import AVOIDED_ANNOTATION
from oarlock_operator import metrics
from oarlock_operator.kube.api_error import Malformed
from oarlock_operator.kube.decoding import KEPT_LEVELS, Page, decoded, decoded_page, parsed, shallow
from oarlock_operator.kube.unreadable import Unreadable
from oarlock_operator.observe.job_facts import read_job
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.process.watches import SeenJob

DEEP = pytest.mark.parametrize("levels", [900, 1_600, 9_990])
METADATA = {"namespace": "ns", "name": "flux", "uid": "uid-1", "resourceVersion": "7"}


def nested(levels: int) -> str:
    return '{"a":' * levels + "[1]" + "}" * levels


def deep_job(levels: int) -> bytes:
    """As the API server sends it: the managed fields are as deep as what they tell of."""
    given = json.dumps(spec().to_manifest())[:-1] + ',"pod":{"patch":{"affinity":' + nested(levels) + "}}}"
    metadata = json.dumps(METADATA)[:-1] + ',"managedFields":[{"fieldsV1":' + nested(levels) + "}]}"
    return f'{{"metadata":{metadata},"spec":{given},"status":{{"attempt":3}}}}'.encode()


def unexpected(raw: msgspec.Raw, error: Exception) -> None:
    raise AssertionError((raw, error))


@DEEP
def test_a_job_that_no_parser_takes_is_told_so_in_words_that_mend_it(levels: int) -> None:
    job = read_job(parsed(deep_job(levels), "a job"))
    assert (job.spec, job.status.attempt) == (None, 3)
    assert job.problem == f"spec.pod.patch is nested more than {MOST_LEVELS} levels deep: write it flatter"


@DEEP
def test_a_list_with_a_job_that_no_parser_takes_holds_all_its_jobs(levels: int) -> None:
    data = b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},' + deep_job(levels) + b"]}"
    page = decoded_page(SeenJob, data, "a list", unreadable=unexpected)
    assert [job.key for job in page.items] == [("", "a"), ("ns", "flux")]
    assert page.metadata.resource_version == "9"


def test_what_is_as_deep_as_a_job_may_be_is_taken_as_it_is() -> None:
    value: Any = 1
    for _ in range(MOST_LEVELS - 3):
        value = {"a": value}
    given = {**spec().to_manifest(), "pod": {"patch": {"affinity": value}}}
    job = read_job({"metadata": METADATA, "spec": given})
    assert job.problem == ""
    deeper = read_job({"metadata": METADATA, "spec": {**given, "pod": {"patch": {"affinity": {"a": value}}}}})
    assert "nested" in deeper.problem


def test_a_spec_that_is_too_large_is_told_so_and_nothing_of_it_is_made_into_objects() -> None:
    many = ",".join(["[]"] * 400_000)
    data = b'{"metadata":%s,"spec":{"managedBy":"a/b","pod":{"patch":{"x":[%s]}}},"status":{"attempt":1}}' % (
        json.dumps(METADATA).encode(),
        many.encode(),
    )
    tracemalloc.start()
    raw = parsed(data, "a job")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(data), "as lists it would be twenty times as much"
    assert raw["spec"]["managedBy"] == "a/b"
    job = read_job(raw)
    assert (job.spec, job.status.attempt) == (None, 1)
    assert f"at most {MOST_BYTES} are read" in job.problem


def test_a_spec_a_little_too_large_is_refused_as_well() -> None:
    given = {**spec().to_manifest(), "pod": {"patch": {"x": "y" * MOST_BYTES}}}
    assert "most of them in pod.patch.x, and at most" in read_job({"metadata": METADATA, "spec": given}).problem


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b'{"a":{"b":{"c":1}},"d":[[[]]]}', b'{"a":{"b":null},"d":[null]}'),
        (b'{"a":"{[{[\\"","b":[1]}', b'{"a":"{[{[\\"","b":[1]}'),
        (b'{"a":{"b":[1],"c":2,"d":{}}}', b'{"a":{"b":null,"c":2,"d":null}}'),
    ],
)
def test_what_lies_too_deep_is_cut_and_the_rest_is_as_it_was(given: bytes, kept: bytes) -> None:
    cut = shallow(given, levels=2)
    assert json.loads(cut) == json.loads(kept)


@pytest.mark.parametrize("broken", [b"[" * 2000, b"]" * 2000, b'{"a":' * 2000 + b'"', b""])
def test_what_is_no_json_is_malformed_however_deep_it_goes(broken: bytes) -> None:
    with pytest.raises(Malformed):
        parsed(broken, "an answer")
    with pytest.raises(Malformed):
        decoded(broken, Page[SeenJob], "an answer")


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "status": status}


def test_an_object_that_cannot_be_read_is_left_out_of_a_list_and_told_of_once() -> None:
    known, before = Unreadable(), metrics.UNREADABLE._value.get()
    odd = pod("odd", containerStatuses="none")
    data = json.dumps({"items": [pod("a"), odd, pod("b")]}).encode()
    with capture_logs() as said:
        for _ in range(3):
            page = decoded_page(RawPod, data, "a list", unreadable=known.note)
            assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert [(line["namespace"], line["name"]) for line in said] == [("ns", "odd")]
    assert metrics.UNREADABLE._value.get() - before == 1


def test_of_the_nodes_that_a_pod_avoids_no_more_names_are_kept_than_a_job_avoids() -> None:
    raw = pod("a")
    raw["metadata"]["annotations"] = {AVOIDED_ANNOTATION: "n1,n2," + "n" * 500_000, "other": "y" * 500_000}
    raw["spec"] = {"affinity": {"podAffinity": {"x": "y" * 500_000}}}
    read = decoded(json.dumps(raw).encode(), RawPod, "a pod")
    assert read.metadata.annotations is not None
    assert read.metadata.annotations.avoided >= {"n1", "n2"}
    assert len(msgspec.json.encode(read)) < 20_000


def test_a_list_of_nothing_s_metadata_is_empty_as_the_api_server_writes_it() -> None:
    data = b'{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9"},"items":null}'
    page = decoded_page(SeenJob, data, "a list", unreadable=unexpected)
    assert (page.items, page.metadata.resource_version) == ((), "9")


def test_the_levels_that_are_kept_are_more_than_a_job_may_have() -> None:
    assert KEPT_LEVELS > 2 * MOST_LEVELS
