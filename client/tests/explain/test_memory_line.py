"""The state in memory is told in one line: which step, how old, and what the loss of a node would cost."""

from __future__ import annotations

from typing import Any

import pytest
from situations import facts, job

from oarlock.explain import explain
from oarlock.explain.prose import prose

HELD = {"step": 1480, "saveTime": "2026-11-23T10:59:48Z"}


@pytest.mark.parametrize(
    ("held", "line"),
    [
        (
            {**HELD, "copied": True},
            "step 1,480 is in the nodes' memory, 12 s old, and each node's part is on another node, too",
        ),
        (
            {**HELD, "copied": False},
            (
                "step 1,480 is in the nodes' memory, 12 s old, and not every node's part is on another node: "
                "the loss of a node goes back to a checkpoint"
            ),
        ),
        (
            {**HELD, "saveTime": "2026-11-23T10:30:00Z"},
            "step 1,480 is in the nodes' memory, 30 min old, each node's part on that node alone",
        ),
        ({"step": 1480}, "step 1,480 is in the nodes' memory, each node's part on that node alone"),
    ],
)
def test_a_job_that_trains_tells_which_state_its_nodes_have_in_memory(held: dict[str, Any], line: str) -> None:
    story = explain(facts(job("Running", memory=held)))
    assert story.now.details == (line,)
    assert "- step 1,480 is in the nodes' memory" in prose(story)


def test_a_job_that_keeps_nothing_in_memory_has_no_such_line() -> None:
    assert explain(facts(job("Running"))).now.details == ()
