"""What rank 0's agent asks the others, and what it hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gangs import KEY, Stranger

from oarlock_local.patience import eventually
from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangs import Gang

QUESTION = Ask(Topic.STACKS, "one")


@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
@pytest.mark.parametrize("only", [None, 2])
def test_whom_rank_0_asks_hears_it_and_is_heard(
    gang_of: Callable[..., Gang], key: bytes | None, only: int | None
) -> None:
    gang = gang_of(3, key=key)
    gang.join_all()
    gang.links[0].ask(QUESTION, only)
    asked = [only] if only else [1, 2]
    for rank in asked:
        assert eventually(lambda rank=rank: gang.news(rank), "the question") == [QUESTION]
        gang.links[rank].answer(Answer(Topic.STACKS, "one", f"I am {rank}"))
    told = [Answer(Topic.STACKS, "one", f"I am {rank}", rank) for rank in asked]
    eventually(lambda: len(gang.news(0)) == len(asked), "all answers")
    assert sorted(gang.news(0), key=lambda one: one.rank) == told
    assert all(not gang.news(rank) for rank in {1, 2} - set(asked))


def test_an_answer_that_nobody_waits_for_is_no_news(gang_of: Callable[..., Gang]) -> None:
    gang = gang_of(2)
    stranger = Stranger(gang.port)
    stranger.hello(rank=1)
    assert stranger.heard()["kind"] == "welcome"
    for words in ("unasked", "again"):
        stranger.socket.sendall(encode(Answer(Topic.STACKS, "one", words)))
    stranger.socket.sendall(b'{"kind":"beat"}\n')
    assert stranger.heard()["kind"] == "beat"
    assert gang.news(0) == []
    gang.links[0].ask(QUESTION)
    assert stranger.heard()["kind"] == "ask"
    for words in ("first", "again"):
        stranger.socket.sendall(encode(Answer(Topic.STACKS, "one", words)))
    stranger.socket.sendall(b'{"kind":"beat"}\n')
    assert stranger.heard()["kind"] == "beat"
    assert gang.news(0) == [Answer(Topic.STACKS, "one", "first", 1)]
