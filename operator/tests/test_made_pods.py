"""Pods count as there from before they are asked for: of a request that failed, the pod may have been made all the same."""

from __future__ import annotations

import pytest
from memory_reconciler import KEY, PODS, reconciler, with_job

from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.reconcile import Reconciler


async def until_refused(here: Reconciler) -> None:
    while True:
        await here.reconcile(KEY, waited=0.0)


async def test_pods_of_a_creation_that_failed_half_way_are_not_forgotten() -> None:
    api = with_job()

    async def quota(verb: str, path: str) -> None:
        if verb == "POST" and path == f"{PODS}/flux-1-1":
            raise ApiError(403, "Forbidden", "exceeded quota")

    api.before = quota
    here = reconciler(api)
    with pytest.raises(ApiError, match="quota"):
        await until_refused(here)
    assert f"{PODS}/flux-1-0" in api.objects
    assert "flux-1-0" in (here.memory.outputs.pods_of(KEY) or ())
