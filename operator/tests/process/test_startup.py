"""What is looked up once, before work begins."""

from __future__ import annotations

from typing import Any, cast

import pytest
from memory_api import MemoryApi

from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.process.startup import cluster_id


async def known_as(api: MemoryApi, **settings: str) -> str:
    return await cluster_id(cast("Cluster", api), **cast("Any", {"given": "", "namespace": "kube-system", **settings}))


async def test_a_cluster_is_told_from_others_by_the_uid_of_a_namespace_of_it() -> None:
    api = MemoryApi()
    api.put("/api/v1/namespaces/kube-system")
    assert await known_as(api) == "other-/api/v1/namespaces/kube-system"


async def test_what_the_settings_say_of_the_cluster_is_taken_without_a_request() -> None:
    api = MemoryApi()
    assert await known_as(api, given="lab") == "lab"
    assert api.requests == []


@pytest.mark.parametrize(("status", "fails"), [(403, False), (404, False), (503, True), (0, True)])
async def test_without_the_right_a_cluster_has_no_name_and_without_an_answer_the_start_fails(
    status: int,
    fails: bool,  # noqa: FBT001
) -> None:
    async def refuse(_verb: str, _path: str) -> None:
        if status != 404:
            raise ApiError(status, "Test", "no")

    api = MemoryApi()
    api.before = refuse
    if fails:
        with pytest.raises(ApiError):
            await known_as(api)
    else:
        assert await known_as(api) == ""
