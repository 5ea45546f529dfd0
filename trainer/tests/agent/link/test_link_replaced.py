"""A gang whose lost pods are replaced: a loss ends no link, and the next incarnation takes the place of the one before."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from gangs import ATTEMPT, JOB_UID, KEY, SHORT_SILENCE, Gang, Network, Stranger

from oarlock_local.patience import eventually
from oarlock_trainer.agent.link import leader as of_rank_0
from oarlock_trainer.agent.link import member as of_another
from oarlock_trainer.agent.link import protocol
from oarlock_trainer.agent.link.loop import Loop
from oarlock_trainer.agent.link.protocol import Left, MissedPod, PeerLost, Welcome
from oarlock_trainer.agent.rounds.model import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oarlock_trainer.agent.link.gang_link import GangLink

    GangOf = Callable[..., Gang]


@pytest.fixture(params=[None, KEY], ids=["without a key", "with a key"])
def gang_of(request: pytest.FixtureRequest, gang_of: GangOf) -> GangOf:
    return partial(gang_of, key=request.param, replaces=True)


@pytest.fixture
def network_to() -> Iterator[Callable[[int], Network]]:
    networks: list[Network] = []

    def make(port: int) -> Network:
        networks.append(Network(port))
        return networks[-1]

    yield make
    for network in networks:
        network.close()


def lost(gang: Gang, rank: int) -> MissedPod:
    """Wait until the agent of this rank is told of a pod that is replaced."""
    found: Any = eventually(
        lambda: next((one for one in gang.news(rank) if isinstance(one, MissedPod)), None), "a lost pod"
    )
    return found


def report_of(gang: Gang, agent: str) -> Report:
    """Wait until rank 0's agent hears this agent's report."""
    found: Any = eventually(
        lambda: next((one for one in gang.news(0) if isinstance(one, Report) and one.agent == agent), None), "a report"
    )
    return found


def test_a_member_that_vanishes_is_lost_to_rank_0_alone_and_its_next_incarnation_is_welcome(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join_all()
    gang.crash(1)
    told = lost(gang, 0)
    assert (told.rank, told.incarnation, told.code) == (1, 1, 82)
    assert "has been silent for" in told.why
    gang.join(1, incarnation=2)
    gang.stand(1, 2)
    gang.links[1].report(Report(rank=1, agent="", incarnation=2, sequence=1))
    heard = report_of(gang, gang.links[1].agent)
    assert (heard.rank, heard.incarnation) == (1, 2)
    assert gang.news(2) == []


def test_a_member_that_the_operator_saw_end_is_lost_at_once_and_told_of_once(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=30.0)
    gang.join_all()
    leader = gang.links[0]
    leader.have_ended([(1, 1), (2, 1), (7, 2)])  # none of these: nobody is of an incarnation before
    gang.crash(1)
    eventually(lambda: leader._role._members[1].trouble, "the end of its connection")  # type: ignore[union-attr]
    for _ in range(3):
        leader.have_ended([(1, 2)])
    told = lost(gang, 0)
    assert (told.rank, told.incarnation, told.code, told.over) == (1, 1, 82, True)
    gang.join(1, incarnation=2)
    gang.stand(1, 2)
    leader.have_ended([(1, 2)])
    gang.links[1].report(Report(rank=1, agent="", incarnation=2, sequence=1))
    report_of(gang, gang.links[1].agent)
    assert [one for one in gang.news(0) if isinstance(one, MissedPod | PeerLost)] == [told]


def test_a_member_that_fell_silent_and_is_seen_to_have_ended_later_is_told_of_again(gang_of: GangOf) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    gang.join_all()
    gang.crash(1)
    assert not lost(gang, 0).over
    gang.links[0].have_ended([(1, 2)])
    eventually(lambda: [one.over for one in gang.news(0) if isinstance(one, MissedPod)] == [False, True], "the end")


def test_a_lost_member_was_heard_when_its_last_word_was_read_and_none_that_came_later_was_answered(
    gang_of: GangOf, network_to: Callable[[int], Network]
) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    network = network_to(gang.port)
    link = gang.join(1, port=network.port)
    gang.stand(1)
    first = answered_at(link)
    eventually(lambda: answered_at(link) > first, "the answer to a beat")
    network.swallows = True
    told = lost(gang, 0)
    assert answered_at(link) <= told.heard_at < time.monotonic() - SHORT_SILENCE / 2, "it was lost long after that"


def test_members_that_fall_silent_together_are_lost_in_the_same_turn() -> None:
    loop = Loop(heartbeat=1.0)
    who = protocol.Gang(job_uid=JOB_UID, attempt=ATTEMPT, rank=0, nodes=12, heartbeat=1.0, silence=5.0, replaces=True)
    leader = of_rank_0.Leader(who, loop, port=0)
    for rank in range(1, 12):
        heard_at = 0.0 if rank < 11 else 9.0
        leader._members[rank] = of_rank_0._Member(rank, f"agent {rank}", 1, None, heard_at=heard_at, read_at=100.0)
    loop._clock.seconds = 10.0
    leader.turn()
    leader.close()
    assert [(type(news), news.rank) for news in loop.news()] == [(MissedPod, rank) for rank in range(1, 11)]  # type: ignore[union-attr]


@pytest.mark.parametrize("over", [False, True])
def test_a_member_that_leaves_for_its_nodes_sake_is_lost_at_once_with_its_reason(gang_of: GangOf, over: Any) -> None:
    gang = gang_of(3, silence=30.0)
    gang.join_all()
    why = "GPU 3 fell off the bus"
    gang.links.pop(2).leave(80, why, over=over)
    assert lost(gang, 0) == MissedPod(rank=2, incarnation=1, code=80, why=why, heard_at=0.0, over=over)
    gang.join(2, incarnation=2)
    gang.stand(1, 2)
    assert gang.news(1) == []


@pytest.mark.parametrize("code", [84, 85, 87, 88])
def test_what_another_pod_would_only_repeat_ends_the_gang(gang_of: GangOf, code: int) -> None:
    gang = gang_of(3)
    gang.join_all()
    gang.links[1].leave(code, "as ever")
    assert [gang.loss(rank) for rank in (0, 2)] == [PeerLost(1, code, "as ever")] * 2


def test_the_same_agent_may_come_again_after_it_was_lost(gang_of: GangOf, network_to: Callable[[int], Network]) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    network = network_to(gang.port)
    member = gang.join(1, port=network.port)
    gang.stand(1)
    member.report(Report(rank=1, agent="", incarnation=1, sequence=7))
    report_of(gang, member.agent)
    network.swallows = True
    assert (lost(gang, 0).rank, lost(gang, 1).rank) == (1, 0)
    gang._news[0].clear()
    network.swallows = False
    network.cut()
    gang.stand(1)
    assert report_of(gang, member.agent).sequence == 7


def test_another_agent_of_the_same_incarnation_is_no_next_one(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join_all()
    gang.crash(1)
    lost(gang, 0)
    gang.join(1)
    eventually(lambda: gang.links[1]._role._trouble == "it refused: another agent holds pod 1", "a refusal")
    gang.links.pop(2).leave(80, "GPU 0")
    eventually(lambda: gang.links[0]._role._left, "its farewell")
    gang.join(2)
    eventually(lambda: gang.links[2]._role._trouble == "it refused: pod 2 has left", "a refusal")


def test_a_later_incarnation_replaces_one_that_still_lives_and_the_older_cannot_come_back(gang_of: GangOf) -> None:
    gang = gang_of(2)
    older = gang.join(1)
    gang.stand(1)
    gang.join(1, incarnation=2)
    gang.stand(1)
    eventually(lambda: older._role._trouble == "it refused: another agent holds pod 1", "a refusal")
    older.leave(82, "")
    assert not [news for news in gang.news(0) if isinstance(news, PeerLost | MissedPod | Left)]


def test_a_later_incarnation_means_nothing_where_pods_are_not_replaced(gang_of: GangOf) -> None:
    gang = gang_of(2, replaces=False)
    gang.join(1)
    gang.stand(1)
    stranger = Stranger(gang.port, key=gang.key)
    stranger.hello(incarnation=2)
    assert stranger.heard() == {"kind": "refused", "why": "another agent holds pod 1"}
    stranger.close()


def test_members_whose_leader_is_lost_find_its_next_incarnation_at_another_address(
    gang_of: GangOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    address = ["127.0.0.1", gang.port]
    found = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(*found, tuple(address))])
    gang.join_all()
    gang.crash(0)
    assert [(lost(gang, rank).rank, lost(gang, rank).code) for rank in (1, 2)] == [(0, 82)] * 2
    address[1] = gang.join(0, port=0, incarnation=2).port
    gang.stand(1, 2)
    assert [len(gang.news(rank)) for rank in (1, 2)] == [1, 1]
    gang.links[1].leave(85, "known to all")
    assert gang.loss(2) == PeerLost(1, 85, "known to all")


def test_members_whose_leader_leaves_for_its_nodes_sake_wait_for_the_next_one(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=30.0)
    gang.join_all()
    gang.links.pop(0).leave(81, "XID 31")
    told = MissedPod(rank=0, incarnation=0, code=81, why="XID 31", heard_at=0.0)
    assert [lost(gang, rank) for rank in (1, 2)] == [told] * 2
    gang.join(0, incarnation=2)
    gang.stand(1, 2)


def test_a_leader_that_was_asked_to_go_is_looked_for_again_and_one_that_is_done_is_not(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join_all()
    gang.links.pop(0).leave(86, "drained")
    eventually(lambda: gang.news(1) == [Left(0, 86)], "its farewell")
    assert not gang.links[1]._role._settled
    other = gang_of(2)
    other.join_all()
    other.links.pop(0).leave(0, "done")
    eventually(lambda: other.news(1) == [Left(0, 0)], "its farewell")
    eventually(lambda: other.links[1]._role._settled, "its end of looking")


def answered_at(link: GangLink) -> float:
    """As a loop knows it that has read what is new."""
    link.news()
    return link.answered_at


def test_words_that_rank_0_has_answered_are_known_by_when_they_were_sent(
    gang_of: GangOf, network_to: Callable[[int], Network]
) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    network = network_to(gang.port)
    before = time.monotonic()
    link = gang.join(1, port=network.port)
    gang.stand(1)
    first = answered_at(link)
    assert before <= first <= time.monotonic()
    later = eventually(lambda: answered_at(link) > first and link.answered_at, "the answer to a beat")
    assert later <= time.monotonic()
    network.swallows = True
    cut = time.monotonic()
    lost(gang, 1)
    assert link.answered_at <= cut


def test_a_welcome_is_an_answer_only_to_whoever_never_had_one() -> None:
    gang = protocol.Gang(job_uid=JOB_UID, attempt=ATTEMPT, rank=1, nodes=2, heartbeat=1.0, silence=5.0, replaces=True)
    member = of_another.Member(gang, Loop(heartbeat=1.0), host="127.0.0.1", port=1)
    member._unanswered.append(5.0)
    member._take(Welcome())
    assert member.answered_at == 5.0
    member._drop("cut")
    member._unanswered.append(9.0)
    member._take(Welcome())
    assert member.answered_at == 5.0, "it does not know yet whether the gang goes on without it"


def test_a_pod_that_leaves_for_what_another_would_repeat_is_the_rounds_business_where_not_all_pods_train(
    gang_of: GangOf,
) -> None:
    gang = gang_of(3, chooses=True)
    gang.join_all()
    gang.links.pop(2).leave(84, "no space left")
    assert lost(gang, 0).code == 84
    assert gang.news(1) == []
    gang.links.pop(0).leave(84, "no space left")
    assert gang.loss(1).code == 84
