"""Credentials that are over: a plugin is asked for new ones, once for all that were refused, and not without a break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from scripted_server import answering

from oarlock_operator.kube.api_error import ApiError


class Plugin:
    """Gives tokens one after the other, the last one for ever. The server takes only `good`."""

    def __init__(self, *tokens: str, good: str) -> None:
        self.tokens, self.good = list(tokens), good
        self.calls = 0
        self.asked: list[str] = []

    async def load(self) -> Configuration:
        self.calls += 1
        if not self.tokens:
            raise RuntimeError("the identity provider is away")
        configuration = Configuration()
        if token := self.tokens.pop(0):
            configuration.api_key = {"BearerToken": f"Bearer {token}"}
        return configuration

    async def answer(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append(token)
        return web.json_response({"taken": token}, status=200 if token == self.good else 401)


def test_a_token_that_is_over_is_renewed_and_nobody_hears_of_it() -> None:
    plugin = Plugin("new", good="new")

    async def run() -> None:
        async with answering(plugin.answer, load=plugin.load) as cluster:
            answers = await asyncio.gather(*(cluster.get("/api") for _ in range(8)))
            assert [one["taken"] for one in answers] == ["new"] * 8

    asyncio.run(run())
    assert plugin.calls == 1


@pytest.mark.parametrize("tokens", [[], ["", ""]], ids=["no answer", "the same token"])
def test_where_there_are_no_others_the_refusal_is_told_and_the_plugin_is_not_asked_again_at_once(
    tokens: list[str],
) -> None:
    plugin = Plugin(*tokens, good="new")

    async def run() -> None:
        async with answering(plugin.answer, load=plugin.load) as cluster:
            for _ in range(3):
                with pytest.raises(ApiError, match="401"):
                    await cluster.get("/api")

    asyncio.run(run())
    assert plugin.calls == 1
    assert len(plugin.asked) == 3


def test_without_a_way_to_new_ones_and_by_way_of_a_pod_a_refusal_is_one() -> None:
    plugin = Plugin("new", good="new")

    async def refused(path: str, load: Callable[[], object] | None) -> None:
        async with answering(plugin.answer, load=load) as cluster:  # type: ignore[arg-type]
            with pytest.raises(ApiError, match="401"):
                await cluster.get(path)

    asyncio.run(refused("/api", None))
    asyncio.run(refused("/api/v1/namespaces/default/pods/flux-1-0:8080/proxy/status", plugin.load))
    assert plugin.calls == 0
