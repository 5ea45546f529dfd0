"""Terms of leadership: what each one begins with, and that nothing comes before the Lease is held on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kube.test_fence import served
from memory_api import Json

from oarlock_local import patience
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.leader import LeadershipLost
from oarlock_operator.observe.progress import Route
from oarlock_operator.process import process
from oarlock_operator.process.lead import Term
from oarlock_operator.process.process import Process
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.startup import Known, NodeRights

SETTINGS = Settings(lease_namespace="ns", cluster_id="lab")


class RightsApi:
    """An API server that grants what it is told to, or does not answer."""

    granted = False
    away = False

    async def get(self, _path: str, **_: str) -> Json:
        if self.away:
            raise ApiError(0, "Test", "away")
        return {}

    async def create(self, _path: str, body: Json) -> Json:
        wish = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": self.granted and wish["resource"] == "nodes"}}


async def rights_of_two_terms(monkeypatch: pytest.MonkeyPatch, change: Callable[[RightsApi], None]) -> list[bool]:
    """Whether nodes might be cordoned in a term, and in the one after `change`."""
    api: Any = RightsApi()
    seen: list[bool] = []

    class Terms:
        def __init__(self, known: Known) -> None:
            self.known = known

        @classmethod
        def begun(cls, *_: Any, known: Known, **__: Any) -> Terms:
            return cls(known)

        async def work(self, _until: Callable[[], Awaitable[None]]) -> None:
            seen.append(self.known.rights.cordon)
            if len(seen) == 2:
                raise asyncio.CancelledError
            change(api)
            raise LeadershipLost("for a test")

    async def done() -> None:
        pass

    leader = SimpleNamespace(acquire=done, release=done, hold=done, may_act=lambda: True)
    monkeypatch.setattr(process, "Term", Terms)
    monkeypatch.setattr(process, "Leader", lambda **_: leader)
    with pytest.raises(asyncio.CancelledError):
        await Process(SETTINGS, api, inside=True).live()
    return seen


async def test_each_term_works_with_the_rights_of_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await rights_of_two_terms(monkeypatch, lambda api: setattr(api, "granted", True)) == [False, True]


async def test_a_term_begins_with_the_rights_of_before_where_the_api_server_does_not_tell_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go_away(api: RightsApi) -> None:
        api.granted = api.away = True

    assert await rights_of_two_terms(monkeypatch, go_away) == [False, False]


async def test_the_lease_is_held_on_from_the_first_moment_whatever_the_api_server_leaves_unanswered() -> None:
    known = Known(NodeRights(watch=False, cordon=True), "lab")
    async with served() as (cluster, server):
        server.hold.clear()
        term = Term.begun(SETTINGS, cluster, known=known, route=Route.DIRECT, identity="a")

        async def until() -> None:
            """What would hold the Lease on: it is over at once."""

        async with asyncio.timeout(patience.SECONDS):
            await term.work(until)
        server.hold.set()
