"""Who is told of a loss, and what is none: whole gangs over real sockets."""

from __future__ import annotations

import select
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from gangs import ATTEMPT, JOB_UID, KEY, SHORT_SILENCE, Gang, Network, Stranger, time_of_silence

from oarlock_local import patience
from oarlock_local.patience import eventually
from oarlock_trainer.agent.link import gang_link
from oarlock_trainer.agent.link.gang_link import GangLink
from oarlock_trainer.agent.link.protocol import Left, PeerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    GangOf = Callable[..., Gang]


@pytest.fixture(params=[None, KEY], ids=["without a key", "with a key"])
def gang_of(request: pytest.FixtureRequest, gang_of: GangOf) -> GangOf:
    """What follows holds for gangs of both kinds."""
    return partial(gang_of, key=request.param)


@pytest.fixture
def network_to() -> Iterator[Callable[[Gang], Network]]:
    networks: list[Network] = []

    def make(gang: Gang) -> Network:
        networks.append(Network(gang.port))
        return networks[-1]

    yield make
    for network in networks:
        network.close()


@pytest.fixture
def reserved_port() -> Iterator[int]:
    """A port where nobody listens yet, and which nobody else is given."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


# Somebody leaves with a failure


def test_a_members_failure_reaches_all_with_its_code_and_reason(gang_of: GangOf) -> None:
    gang = gang_of(4)
    gang.join_all()
    gang.links[2].leave(83, "rank 2 hangs\nat step 90")
    told = PeerLost(2, 83, "rank 2 hangs at step 90")
    assert [gang.loss(rank) for rank in (0, 1, 3)] == [told] * 3
    assert all(gang.links[rank].reason_told for rank in (0, 1, 3))


def test_the_leaders_failure_reaches_all_members(gang_of: GangOf) -> None:
    gang = gang_of(4)
    gang.join_all()
    gang.links[0].leave(84, "the storage is full")
    assert [gang.loss(rank) for rank in (1, 2, 3)] == [PeerLost(0, 84, "the storage is full")] * 3


def test_only_the_first_cause_is_told_though_all_victims_leave_as_well(gang_of: GangOf) -> None:
    gang = gang_of(4)
    gang.join_all()
    gang.links[3].leave(81, "XID 31")
    for rank in (1, 2):
        gang.loss(rank)
        gang.links[rank].leave(82, "lost a peer")
    eventually(lambda: gang.links[0]._role._left.keys() == {1, 2, 3}, "all farewells")
    gang.links[0].leave(82, "lost a peer")
    assert [gang.news(rank) for rank in (0, 1, 2)] == [[PeerLost(3, 81, "XID 31")]] * 3


def test_a_member_that_comes_after_the_loss_is_told_at_once(gang_of: GangOf) -> None:
    gang = gang_of(3)
    gang.join(1)
    gang.stand(1)
    gang.links[1].leave(87, "GPU 3 is lost")
    gang.loss(0)
    gang.join(2)
    assert gang.loss(2) == PeerLost(1, 87, "GPU 3 is lost")


def test_words_said_while_the_link_still_connects_arrive(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join(1)
    eventually(lambda: gang.links[1]._role._connection, "a connection under way")
    gang.links[1].leave(87, "GPU 0 is lost")
    assert gang.loss(0) == PeerLost(1, 87, "GPU 0 is lost")


# Somebody falls silent


def test_a_leader_that_crashes_is_lost_to_all_members(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join_all()
    gang.crash(0)
    for rank in (1, 2):
        loss = gang.loss(rank)
        assert (loss.rank, loss.code) == (0, None)
        assert "cannot be reached: Connection refused" in loss.why
        assert not gang.links[rank].reason_told


def test_a_member_that_crashes_is_lost_to_all_others(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join_all()
    gang.crash(1)
    assert gang.loss(2) == gang.loss(0)
    assert (gang.loss(0).rank, gang.loss(0).code) == (1, None)
    assert "its connection was cut" in gang.loss(0).why


def test_a_network_that_swallows_everything_is_a_loss_on_both_sides(
    gang_of: GangOf, network_to: Callable[[Gang], Network]
) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    network = network_to(gang)
    gang.join(1, port=network.port)
    gang.join(2)
    gang.stand(1, 2)
    network.swallows = True
    assert (gang.loss(0).rank, gang.loss(1).rank, gang.loss(2).rank) == (1, 0, 1)
    assert "has been silent for" in gang.loss(2).why


def test_a_member_that_was_given_up_learns_it_when_it_comes_again(
    gang_of: GangOf, network_to: Callable[[Gang], Network]
) -> None:
    gang = gang_of(2, silence=SHORT_SILENCE)
    network = network_to(gang)
    gang.join(1, port=network.port, silence=60.0)
    gang.stand(1)
    network.swallows = True
    gang.loss(0)
    network.swallows = False
    network.cut()
    assert gang.loss(1) == gang.loss(0) == PeerLost(1, None, gang.loss(0).why)


def test_a_link_that_fails_itself_says_so_to_its_own_agent(gang_of: GangOf) -> None:
    gang = gang_of(2)
    link = gang.links[0]
    gang.crash(0)
    (news,) = eventually(link.news, "news")
    assert (news.rank, news.code) == (None, None)
    link.leave(82, "returns though the thread is gone")


# What is no loss


@pytest.mark.parametrize("code", [0, 86])
def test_done_and_left_on_request_are_no_loss(gang_of: GangOf, code: int) -> None:
    gang = gang_of(4)
    gang.join_all()
    gang.links[2].leave(code, "saved at step 90")
    for rank in (0, 1, 3):
        eventually(lambda rank=rank: gang.news(rank), "news")
    gang.links[3].leave(code, "saved at step 90")
    for rank in (0, 1):
        eventually(lambda rank=rank: gang.news(rank) == [Left(2, code), Left(3, code)], "both, and no loss")


def test_after_the_leader_left_in_peace_nobody_is_judged(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=0.3)
    gang.join_all()
    gang.links[0].leave(0, "done")
    time_of_silence(gang)
    assert [gang.news(rank) for rank in (1, 2)] == [[Left(0, 0)]] * 2


def test_connections_that_are_cut_and_made_again_are_no_loss(
    gang_of: GangOf, network_to: Callable[[Gang], Network]
) -> None:
    gang = gang_of(3)
    network = network_to(gang)
    for rank in (1, 2):
        gang.join(rank, port=network.port)
    gang.stand(1, 2)
    for cuts in range(1, 6):
        network.cut()
        eventually(lambda cuts=cuts: network.connections >= 2 + 2 * cuts, "new connections")
        gang.stand(1, 2)
    gang.links[2].leave(83, "hang")
    assert gang.news(1) in ([], [gang.loss(1)])
    assert gang.loss(0) == gang.loss(1) == PeerLost(2, 83, "hang")


def test_a_gang_at_peace_has_no_news(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=0.3)
    gang.join_all()
    time_of_silence(gang)
    assert [gang.news(rank) for rank in range(3)] == [[], [], []]


# The start


def test_a_leader_that_comes_late_is_found_and_nobody_was_lost_meanwhile(gang_of: GangOf, reserved_port: int) -> None:
    gang = gang_of(3, silence=0.3, port=reserved_port)
    gang.join(1)
    gang.join(2)
    time_of_silence(gang)
    gang.join(0)
    gang.stand(1, 2)
    assert [gang.news(rank) for rank in range(3)] == [[], [], []]
    gang.links[1].leave(1, "ValueError")
    assert gang.loss(2) == PeerLost(1, 1, "ValueError")


def test_a_leader_of_the_attempt_before_is_passed_over(gang_of: GangOf, reserved_port: int) -> None:
    gang = gang_of(2, port=reserved_port)
    gang.join(0, attempt=ATTEMPT - 1)
    gang.join(1)
    trouble = eventually(lambda: gang.links[1]._role._trouble, "a refusal")
    assert trouble == f"it refused: it belongs to attempt {ATTEMPT}, this is attempt {ATTEMPT - 1}"
    gang.links[0].leave(82, "the old gang ends")
    assert gang.news(1) == []
    gang.join(0)
    gang.stand(1)


def test_a_name_that_is_not_known_yet_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def unanswered(*_: object, **__: object) -> list[object]:
        asked.set()
        answers.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", unanswered)
    link = GangLink(job_uid=JOB_UID, attempt=1, rank=1, nodes=2, leader="flux-0.flux.invalid", port=9401)
    assert asked.wait(patience.SECONDS)
    link.leave(87, "unfit")
    assert link.news() == []
    answers.set()


def test_a_port_that_is_taken_is_an_error_of_rank_0s_constructor(gang_of: GangOf) -> None:
    with pytest.raises(OSError, match="in use"):
        gang_of(2).join(0)


def test_a_single_node_has_an_inert_link() -> None:
    link = GangLink(job_uid=JOB_UID, attempt=1, rank=0, nodes=1, leader="nowhere.invalid", port=9401)
    assert (link.descriptor, link.news()) == (None, [])
    link.leave(83, "nobody hears this")
    assert link.news() == []


# The agent's loop


def test_the_descriptor_is_readable_while_there_is_news_and_only_then(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join_all()
    link = gang.links[0]
    assert select.select([link.descriptor], [], [], 0)[0] == []
    gang.links[1].leave(80, "GPU 2 fell off the bus")
    assert select.select([link.descriptor], [], [], patience.SECONDS)[0] == [link.descriptor]
    assert link.news() == [PeerLost(1, 80, "GPU 2 fell off the bus")]
    assert select.select([link.descriptor], [], [], 0)[0] == []


def test_leave_returns_though_a_member_is_stuck(gang_of: GangOf) -> None:
    gang = gang_of(3)
    stuck = Stranger(gang.port, key=gang.key)
    stuck.hello(rank=2)
    gang.join(1)
    gang.stand(1)
    gang.links[0].leave(83, "hang")
    assert gang.loss(1) == PeerLost(0, 83, "hang")
    stuck.close()


def test_leave_returns_though_the_leader_is_stuck() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        link = GangLink(job_uid=JOB_UID, attempt=1, rank=1, nodes=2, leader="127.0.0.1", port=deaf.getsockname()[1])
        eventually(lambda: link._role._connection, "a connection")
        link.leave(83, "hang")
        assert eventually(link._over.is_set, "the end of its thread")
    assert gang_link._LEAVE_SECONDS < 1, "what it waits for at most: the grace of a pod is not this one's"


def test_leave_waits_no_longer_than_it_says_for_a_thread_that_never_ends(
    gang_of: GangOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = gang_of(2)
    waits: list[float | None] = []

    class Endless:
        def wait(self, seconds: float | None = None) -> None:
            waits.append(seconds)

    monkeypatch.setattr(gang.links[0], "_over", Endless())
    gang.links[0].leave(83, "hang")
    assert waits == [gang_link._LEAVE_SECONDS]


def test_leaving_again_says_nothing_more(gang_of: GangOf) -> None:
    gang = gang_of(3)
    gang.join_all()
    gang.links[1].leave(83, "first")
    gang.links[1].leave(84, "second")
    assert gang.loss(0) == gang.loss(2) == PeerLost(1, 83, "first")
    gang.links[0].leave(82, "")
    assert gang.news(2) == [PeerLost(1, 83, "first")]
