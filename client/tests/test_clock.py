from __future__ import annotations

from typing import Any

import pytest

from oarlock.clock import when

TIMES = {
    "series": {"lastObservedTime": "5"},
    "lastTimestamp": "4",
    "eventTime": "3",
    "firstTimestamp": "2",
    "metadata": {"creationTimestamp": "1"},
}


@pytest.mark.parametrize("known", range(6))
def test_an_event_was_last_when_the_latest_thing_that_it_has_says_so(known: int) -> None:
    event: dict[str, Any] = dict(list(TIMES.items())[::-1][:known])
    assert when(event) == (str(known) if known else "")


def test_an_event_of_strange_types_has_no_time() -> None:
    assert when({"series": "often", "lastTimestamp": None, "eventTime": 7, "metadata": []}) == ""
