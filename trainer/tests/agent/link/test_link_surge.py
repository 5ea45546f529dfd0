"""A surge pod: it connects once it is ready, and is a member once the pod before it has left or is lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from gangs import KEY, SHORT_SILENCE, Gang, time_of_silence

from oarlock_api.contract.rounds import SurgePod
from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.link.protocol import Left, MissedPod
from oarlock_trainer.agent.rounds.model import Report
from oarlock_trainer.agent.rounds.surge import Surging, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.agent.link.gang_link import GangLink

    GangOf = Callable[..., Gang]


@pytest.fixture(params=[None, KEY], ids=["without a key", "with a key"])
def gang_of(request: pytest.FixtureRequest, gang_of: GangOf) -> GangOf:
    return partial(gang_of, key=request.param, replaces=True)


def surge(gang: Gang, rank: int, *, incarnation: int = 2) -> GangLink:
    """The surge pod of this rank, which is ready; the link of the pod before it is no more in `gang.links`."""
    link = gang.join(rank, incarnation=incarnation, surge=True)
    link.open()
    return link


def waits(gang: Gang, *pods: tuple[int, int]) -> None:
    """Wait until rank 0's agent knows that these wait, and no others."""
    eventually(
        lambda: ([one for one in gang.news(0) if isinstance(one, Waiting)] or [None])[-1] == Waiting(frozenset(pods)),
        f"{pods}",
    )


def hears(gang: Gang, link: GangLink) -> Report:
    link.report(Report(rank=1, agent="", incarnation=2, sequence=1))
    found: Any = eventually(
        lambda: next((one for one in gang.news(0) if isinstance(one, Report) and one.agent == link.agent), None),
        "a report",
    )
    return found


def losses(gang: Gang) -> list[object]:
    return [one for one in gang.news(0) if isinstance(one, MissedPod | Left)]


def test_it_connects_once_it_is_ready_and_no_word_of_it_counts_while_the_one_before_is_there(gang_of: GangOf) -> None:
    gang = gang_of(3)
    gang.join_all()
    old = gang.links[1]
    new = gang.join(1, incarnation=2, surge=True)
    gang.links[2].report(Report(rank=2, agent="", incarnation=1, sequence=1))
    eventually(lambda: any(isinstance(one, Report) for one in gang.news(0)), "the report of another")
    assert not any(isinstance(one, Waiting) for one in gang.news(0))
    new.report(Report(rank=1, agent="", incarnation=2, sequence=1))
    new.open()
    waits(gang, (1, 2))
    assert not new.admitted
    old.report(Report(rank=1, agent="", incarnation=1, sequence=1))
    (heard,) = eventually(
        lambda: [one for one in gang.news(0) if isinstance(one, Report) and one.rank == 1], "the old one"
    )
    assert heard.agent == old.agent
    assert losses(gang) == []
    old.leave(0, "")


def test_it_waits_for_longer_than_a_silence_and_is_welcome_as_soon_as_the_one_before_has_left(gang_of: GangOf) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    gang.join_all()
    old, new = gang.links[1], surge(gang, 1)
    waits(gang, (1, 2))
    time_of_silence(gang)
    assert not new.admitted
    assert losses(gang) == []
    old.leave(86, "asked to go")
    eventually(lambda: new.admitted, "its welcome")
    heard = hears(gang, new)
    assert (heard.rank, heard.incarnation) == (1, 2)
    assert losses(gang) == [Left(1, 86)], "and it is not the new one that left"
    waits(gang)


@pytest.mark.parametrize("how", ["it falls silent", "the operator saw its end", "it breaks as it leaves"])
def test_it_is_welcome_once_the_one_before_is_lost(gang_of: GangOf, how: str) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    gang.join_all()
    old, new = gang.links.pop(1), surge(gang, 1)
    gang.links |= {1: new}
    waits(gang, (1, 2))
    if how == "it breaks as it leaves":
        old.leave(1, "the program failed")
    else:
        gang.links[1] = old
        gang.crash(1)
        gang.links[1] = new
        if how == "the operator saw its end":
            gang.links[0].have_ended([(1, 2)])
    eventually(lambda: new.admitted, "its welcome")
    hears(gang, new)
    (lost,) = losses(gang)
    assert isinstance(lost, MissedPod)
    assert (lost.rank, lost.incarnation) == (1, 1)


def test_where_nobody_is_before_it_it_is_welcome_at_once(gang_of: GangOf) -> None:
    gang = gang_of(2)
    new = surge(gang, 1)
    eventually(lambda: new.admitted, "its welcome")
    assert not any(isinstance(one, Waiting) and one.pods for one in gang.news(0))


def test_one_that_vanishes_waits_no_more_and_of_two_the_later_one_does(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join_all()
    old = gang.links[1]
    surge(gang, 1)
    waits(gang, (1, 2))
    gang.crash(1)
    waits(gang)
    surge(gang, 1, incarnation=3)
    waits(gang, (1, 3))
    assert losses(gang) == []
    old.leave(0, "")


def test_it_finds_the_next_rank_0_by_itself(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join_all()
    gang.links["old"] = gang.links[1]  # type: ignore[index]
    new = surge(gang, 1)
    waits(gang, (1, 2))
    gang.crash("old")  # type: ignore[arg-type]
    leader = gang.links[0]
    gang.crash(0)
    assert leader._over.wait(patience.SECONDS), "its port is free"
    gang.join(0, incarnation=2)
    eventually(lambda: new.admitted, "its welcome, as this one knows of no pod before it")


def test_what_the_operator_says_is_news_of_rank_0_alone_and_the_newest_counts(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join_all()
    for link in gang.links.values():
        link.note_surge((SurgePod(1, 2, 40),), 1000)
        link.note_surge((SurgePod(1, 3, 20),), 1001)
        link.note_surge((SurgePod(1, 2, 40),), 1000)  # somebody says it once more
    told = [one for one in gang.news(0) if isinstance(one, Surging)]
    assert [one.pods for one in told] == [(SurgePod(1, 3, 20),)]
    assert not any(isinstance(one, Surging) for one in gang.news(1))
