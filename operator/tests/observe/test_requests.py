"""What a job costs the API server in requests: reads before the first write are only those of what no watch tells."""

from __future__ import annotations

import json
from typing import Any

from made_pods import made
from observe.test_gone import JOB, Operator, serving

POD = "/api/v1/namespaces/default/pods/flux-1-0"


async def started(api: Any, operator: Operator) -> list[tuple[str, str]]:
    """All requests of a job of one pod from its creation until its container runs."""
    # Which gang systems there are, and who else is in the namespace, is asked for all jobs together.
    api.objects[JOB]["spec"] |= {"nodes": 1, "gpusPerNode": 1, "scheduling": {"gang": "None"}}
    await operator.reconciler.memory.outputs.complete(api, "default")
    first = await operator.look()
    made = api.objects[POD]
    assert not operator.hear("ADDED", made), "what the operator made itself is no news"
    made["spec"]["nodeName"] = "node-1"
    state = {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
    placed = [{"type": "PodScheduled", "status": "True"}]
    made["status"] = {
        "phase": "Running",
        "conditions": placed,
        "containerStatuses": [{"name": "trainer", "state": state}],
    }
    assert operator.hear("MODIFIED", made)
    second = await operator.look()
    assert api.objects[JOB]["status"]["recovery"]["stage"] == "FirstStep"
    return first + second


async def test_a_job_of_one_pod_costs_at_most_seven_requests_until_it_runs() -> None:
    operator = Operator(api := serving())
    requests = await started(api, operator)
    assert requests == [
        *(("GET", JOB), ("PUT", f"{JOB}/status"), ("POST", POD)),
        *(("GET", JOB), ("GET", POD), ("PUT", f"{JOB}/status")),
    ]
    assert len(requests) + len(operator.told) <= 7, "each Event is a request, too"


async def test_a_job_that_looks_at_itself_again_asks_for_its_pod_and_searches_no_others() -> None:
    operator = Operator(api := serving())
    await started(api, operator)
    assert await operator.look() == [("GET", JOB), ("GET", POD)]


async def test_a_pod_that_went_while_no_watch_was_there_is_forgotten_by_the_next_look() -> None:
    operator = Operator(api := serving())
    await started(api, operator)
    stale = {"name": "flux-0-0", "namespace": "default", "labels": api.objects[POD]["metadata"]["labels"]}
    operator.reconciler.memory.outputs.note_made([{"metadata": stale}])
    assert ("LIST", POD.rpartition("/")[0]) in await operator.look()
    assert await operator.look() == [("GET", JOB), ("GET", POD)]


def test_what_all_pods_of_a_gang_carry_stays_small() -> None:
    written = len(json.dumps(made(rank=1, gpusPerNode=8), separators=(",", ":")))
    assert written < 5000, f"{written} bytes, a thousand times"
