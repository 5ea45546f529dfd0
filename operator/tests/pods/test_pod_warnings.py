"""What a kubelet says of a pod that does not start, in Events only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from jobs import START, job

from oarlock_api.history import RecoveryStatus
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.kube.decoding import Page
from oarlock_operator.model.observation import Pod
from oarlock_operator.pods.pod_warnings import AFTER, MOST, MOST_PAGES, with_pod_warnings

Json = dict[str, Any]


class Told:
    """An API server with Events about every pod, page by page; counts the pages that are read."""

    def __init__(self, *pages: list[Json]) -> None:
        self.pages, self.read, self.asked = pages, 0, 0

    async def pages_of(self, kind: Any, _path: str, *, fieldSelector: str) -> AsyncIterator[Page[Any]]:  # noqa: N803 - the API's own spelling
        assert fieldSelector.endswith(",type=Warning")
        self.asked += 1
        for page in self.pages:
            self.read += 1
            yield Page(items=tuple(msgspec.convert(event, kind) for event in page))


def warning(reason: str, minute: int, **more: Any) -> Json:
    return {"reason": reason, "message": f"{reason}!", "lastTimestamp": f"2026-01-01T12:{minute:02}:00Z", **more}


async def warnings(told: Told, *, pods: int = 1, seconds: float = 60) -> list[str]:
    placed = [Pod(name=f"p{rank}", uid=f"u{rank}", attempt=1, rank=rank, scheduled=True) for rank in range(pods)]
    starting = job(status=TrainingJobStatus(attempt=1, recovery=RecoveryStatus(stage="Start", stage_start_time=START)))
    now = START + timedelta(seconds=seconds)
    seen = await with_pod_warnings(told, starting, placed, now=now)  # type: ignore[arg-type]
    assert all(pod.by_event == bool(pod.obstacle) for pod in seen), "anybody may write an Event"
    return [pod.obstacle for pod in seen]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([warning("FailedMount", 5), warning("FailedAttachVolume", 9), warning("Failed", 7)], "FailedAttachVolume"),
        ([warning("FailedMount", 5), warning("FailedScheduling", 9)], "FailedMount"),
        ([warning("Old", 5), warning("New", 0, lastTimestamp=None, eventTime="2026-01-01T12:30:00.5Z")], "New"),
        ([warning("Untimed", 0, lastTimestamp=None)], "Untimed"),
        ([{"reason": None, "message": None}], ""),
        ([], ""),
    ],
    ids=["newest", "placed since", "new style", "no time", "nothing said", "none"],
)
async def test_the_newest_warning_is_what_a_pod_waits_for(events: list[Json], words: str) -> None:
    assert await warnings(Told(events)) == [f"{words}: {words}!" if words else ""]


async def test_of_any_number_of_events_a_bounded_part_is_read_and_of_few_pods() -> None:
    told = Told(*[[warning("FailedMount", page % 60)] * 500 for page in range(20)])
    assert await warnings(told, pods=32) == ["FailedMount: FailedMount!"] * MOST + [""] * (32 - MOST)
    assert (told.asked, told.read) == (MOST, MOST * MOST_PAGES)


async def test_a_start_that_is_only_slow_asks_for_no_events() -> None:
    told = Told([warning("FailedMount", 5)])
    assert await warnings(told, seconds=AFTER.total_seconds() - 1) == [""]
    assert told.asked == 0
