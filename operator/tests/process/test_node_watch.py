"""The watch of nodes in its thread: it always ends, and nothing of it stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import kopf
import pytest
from kubernetes.aio.client import Configuration

from oarlock_local import patience
from oarlock_operator.process.node_watch import watch_nodes


def no_news(_kind: str | None, _node: dict[str, Any]) -> None:
    raise AssertionError("nobody told of a node")


async def test_a_watch_whose_thread_ends_before_it_begins_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(life: Coroutine[Any, Any, None]) -> None:
        life.close()
        raise RuntimeError("too many open files")

    monkeypatch.setattr(asyncio, "run", fail)
    with pytest.raises(RuntimeError, match="too many open files"):
        async with asyncio.timeout(patience.SECONDS):
            await watch_nodes(Configuration(), no_news)


async def test_a_watch_that_is_cancelled_before_it_begins_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, left, run = threading.Event(), threading.Event(), asyncio.run

    def late(life: Coroutine[Any, Any, None]) -> None:
        go.wait(patience.SECONDS)
        run(life)

    async def watching(**_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    monkeypatch.setattr(asyncio, "run", late)
    monkeypatch.setattr(kopf, "operator", watching)
    watch = asyncio.create_task(watch_nodes(Configuration(), no_news))
    await asyncio.sleep(0)
    watch.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await watch
    assert await asyncio.to_thread(left.wait, patience.SECONDS)
