"""What rank 0's pod tells: figures and pictures, through the API server as the caller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_agent import agent
from fake_api import FakeApi

from oarlock import NotFoundError
from oarlock.cluster import connect
from oarlock.errors import NotNowError
from oarlock.leader import Leader, find_leader
from oarlock_api.contract.figures import Figures
from oarlock_api.contract.reads import StepFigures, figures_body

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 1000
STEPS = [StepFigures(time=f"2026-01-01T00:00:0{step}Z", figures=Figures(step=step, loss=0.5)) for step in (4, 5)]


@pytest.fixture
def pod(api: FakeApi) -> Iterator[dict[str, bytes]]:
    """What the agent in rank 0's pod of the newest attempt has at which path."""
    for attempt in (9, 10):
        api.add_pod("flux", attempt, 0, None)
    api.add_pod("flux", 10, 1, None)
    with agent(api, "flux-10-0") as paths:
        yield paths


def leader() -> Leader:
    return find_leader(connect(), namespace="default", job="flux", uid="uid-flux")


def test_figures_after_a_step_come_from_rank_0_of_the_newest_attempt(pod: dict[str, bytes]) -> None:
    pod["/figures?since=3"] = figures_body(10, STEPS).encode()
    assert leader().pod == "flux-10-0"
    assert leader().figures(since=3) == (10, STEPS)


def test_an_agent_that_tells_nonsense_is_said(pod: dict[str, bytes]) -> None:
    pod["/figures?since=0"] = b"[]"
    with pytest.raises(NotNowError, match="tells no figures"):
        leader().figures()


def test_an_image_of_an_earlier_release_has_no_figures(pod: dict[str, bytes]) -> None:
    assert pod == {}
    with pytest.raises(NotFoundError, match="does not have /figures"):
        leader().figures()


def test_the_index_is_as_the_output_has_it_and_empty_before_the_first_picture(pod: dict[str, bytes]) -> None:
    assert leader().pictures() == ""
    pod["/validation/index.json"] = b'{"pictures": []}'
    assert leader().pictures() == '{"pictures": []}'


def test_a_picture_is_one_by_its_name_and_by_its_first_bytes(pod: dict[str, bytes]) -> None:
    pod["/validation/step-2/boat.png"] = PNG
    pod["/validation/step-2/page.png"] = b"<script>"
    assert leader().picture("step-2/boat.png") == ("image/png", PNG)
    with pytest.raises(NotFoundError, match="no picture"):
        leader().picture("step-2/page.png")
    for name in ("../figures", "index.json", "step-2/../boat.png", "step-2/boat.svg"):
        with pytest.raises(NotFoundError, match="no name of a picture"):
            leader().picture(name)


def test_a_pod_may_have_its_status_on_another_port(api: FakeApi, pod: dict[str, bytes]) -> None:
    ports = [{"name": "link", "containerPort": 1}, {"name": "status", "containerPort": 9500}]
    api.objects["/api/v1/namespaces/default/pods/flux-10-0"]["spec"] = {
        "containers": [{"name": "side"}, {"name": "trainer", "ports": ports}]
    }
    pod["/validation/index.json"] = b"{}"
    assert leader().pictures() == "{}"
    assert str(api.asked[-1][1]).endswith("?ports=9500")


def test_a_pod_of_an_earlier_job_of_that_name_is_not_asked(api: FakeApi) -> None:
    api.add_pod("flux", 1, 0, None)
    earlier = api.add_pod("flux", 7, 0, None)["metadata"]
    earlier["labels"]["oarlock.dev/job-uid"] = earlier["ownerReferences"][0]["uid"] = "uid-earlier"
    assert leader().pod == "flux-1-0"


@pytest.mark.parametrize("owners", [[], [{"kind": "ReplicaSet", "uid": "uid-x", "controller": True}], None])
def test_a_pod_that_only_wears_the_labels_of_a_job_is_not_its_leader(api: FakeApi, owners: object) -> None:
    api.add_pod("flux", 1, 0, None)
    api.add_pod("flux", 7, 0, None)["metadata"]["ownerReferences"] = owners
    assert leader().pod == "flux-1-0"


def test_a_pod_that_is_being_deleted_is_asked_only_where_there_is_no_other(api: FakeApi) -> None:
    api.add_pod("flux", 2, 0, None)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert leader().pod == "flux-2-0"
    api.add_pod("flux", 1, 0, None)
    assert leader().pod == "flux-1-0"


def test_a_job_without_a_running_pod_of_rank_0_says_where_its_pictures_are(api: FakeApi) -> None:
    api.add_pod("flux", 1, 1, None)
    api.add_pod("flux", 1, 0, None)["status"]["phase"] = "Succeeded"
    with pytest.raises(NotNowError, match="lies in its output"):
        leader()
