"""What comes from outside, or from a peer gone mad, never ends the gang."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from gangs import SHORT_SILENCE, Gang, Stranger, time_of_silence

from oarlock_local.patience import eventually
from oarlock_trainer.agent.link.gang_link import GangLink
from oarlock_trainer.agent.link.protocol import MAX_LINE, PeerLost

if TYPE_CHECKING:
    from collections.abc import Callable

    GangOf = Callable[..., Gang]


NOISE = random.Random(1).randbytes(16 * MAX_LINE)  # noqa: S311 - no secret


def proven_well(gang: Gang) -> None:
    """Nobody was lost, and the link still does what it is for."""
    last = gang.nodes - 1
    assert [gang.news(rank) for rank in gang.links] == [[] for _ in gang.links]
    gang.links[last].leave(83, "well")
    assert {gang.loss(rank) for rank in gang.links if rank != last} == {PeerLost(last, 83, "well")}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"jobUid": "another"}, "it belongs to another job"),
        ({"attempt": 2}, "it belongs to attempt 2, this is attempt 3"),
        ({"attempt": 4}, "it belongs to attempt 4, this is attempt 3"),
        ({"rank": 0}, "it says pod 0, the members of this gang are 1..2"),
        ({"rank": 3}, "it says pod 3, the members of this gang are 1..2"),
        ({"version": 99}, "it speaks version 99 of the link, this agent version 1"),
        ({"rank": 1}, "another agent holds pod 1"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_and_harmless(gang_of: GangOf, changes: dict[str, Any], why: str) -> None:
    gang = gang_of(3)
    gang.join_all()
    stranger = Stranger(gang.port)
    stranger.hello(**changes)
    assert stranger.heard() == {"kind": "refused", "why": why}
    assert stranger.all_heard() == b""
    proven_well(gang)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="a browser"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b'{"kind":"leave","code":83,"why":"me too"}\n', id="words before the hello"),
        pytest.param(b'{"kind":"lost","rank":1,"code":83,"why":"lies"}\n', id="rank 0's words"),
        pytest.param(b'{"kind":"hello","version":1,"jobUid":"uid-of-job","attempt":3,"rank":1}\n', id="no agent"),
        pytest.param(b'{"kind":"hello","rank":true,"attempt":1e9}\n', id="odd values"),
        pytest.param(b"x" * 4 * MAX_LINE, id="an endless line"),
        pytest.param(NOISE, id="noise"),
    ],
)
def test_whoever_says_no_hello_is_turned_away_unanswered_and_harmless(gang_of: GangOf, said: bytes) -> None:
    gang = gang_of(3)
    gang.join_all()
    stranger = Stranger(gang.port)
    with contextlib.suppress(ConnectionError):
        stranger.socket.sendall(said)
    assert stranger.all_heard() == b""
    proven_well(gang)


def test_a_stranger_that_says_nothing_is_turned_away_in_time(gang_of: GangOf) -> None:
    gang = gang_of(2, silence=0.3)
    stranger = Stranger(gang.port)
    stranger.socket.sendall(b'{"kind":')
    assert stranger.all_heard() == b""
    gang.join_all()
    proven_well(gang)


def test_a_crowd_of_idlers_takes_no_place_from_a_member(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=30.0)
    crowd = [Stranger(gang.port) for _ in range(200)]
    gang.join_all()
    eventually(lambda: len(gang.links[0]._role._strangers) <= gang.nodes + 16, "the bound")
    assert len(gang.links[0]._role._strangers) + len(gang.links[0]._role._rank_of) <= gang.nodes + 16
    proven_well(gang)
    for idler in crowd:
        idler.close()


def test_a_rank_that_has_left_cannot_be_claimed_again(gang_of: GangOf) -> None:
    gang = gang_of(3)
    gang.join_all()
    gang.links.pop(1).leave(0, "done")
    stranger = Stranger(gang.port)
    stranger.hello(rank=1)
    assert stranger.heard() == {"kind": "refused", "why": "pod 1 has left"}


def test_the_newer_connection_of_the_same_agent_replaces_the_older(gang_of: GangOf) -> None:
    gang = gang_of(3)
    older, newer = Stranger(gang.port), Stranger(gang.port)
    older.hello()
    assert older.heard() == {"kind": "welcome"}
    newer.hello()
    assert newer.heard() == {"kind": "welcome"}
    assert older.all_heard() == b""
    newer.say(kind="beat")
    assert newer.heard() == {"kind": "beat"}
    assert gang.news(0) == []
    newer.close()


def test_a_member_gone_mad_is_cut_off_and_only_its_silence_is_its_loss(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=SHORT_SILENCE)
    gang.join(1)
    gang.stand(1)
    mad = Stranger(gang.port)
    mad.hello(rank=2)
    assert mad.heard() == {"kind": "welcome"}
    mad.socket.sendall(b'\xff\xfe{"kind":"unknown"}\n{"kind":"welcome"}\n[]\n')
    mad.say(kind="beat")
    assert mad.heard() == {"kind": "beat"}
    mad.socket.sendall(b"x" * MAX_LINE)
    assert mad.all_heard() == b""
    loss = gang.loss(1)
    assert (loss.rank, loss.code) == (2, None)
    assert "a line of more than 1024 bytes came" in loss.why


def test_a_member_that_floods_without_reading_is_cut_off_and_holds_nobody_up(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=30.0)
    flood = Stranger(gang.port)
    flood.hello(rank=2)
    gang.join(1)
    gang.stand(1)
    with contextlib.suppress(ConnectionError):  # the end that is waited for
        while True:
            flood.socket.sendall(b'{"kind":"beat"}\n' * 1000)
    gang.links[1].leave(83, "still heard")
    assert gang.loss(0) == PeerLost(1, 83, "still heard")


def test_noise_from_the_leaders_port_is_no_news_to_a_member() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = GangLink(
            job_uid="u", attempt=1, rank=1, nodes=2, leader="127.0.0.1", port=server.getsockname()[1],
            heartbeat=0.05, silence=1.0,
        )  # fmt: skip
        for said in (b"", b"\xff\n" * 9, b"x" * 5000, b'{"kind":"lost","rank":0,"code":1,"why":"not welcome yet"}\n'):
            end, _ = server.accept()
            with end, contextlib.suppress(ConnectionError):
                end.sendall(said)
        end, _ = server.accept()
        with end:
            end.sendall(
                b'{"kind":"welcome"}\n\xff\n{"kind":"left","peers":[[1],7,["a",0],{}]}\n{"kind":"lost","why":7}\n'
            )
            assert eventually(member.news, "news") == [PeerLost(None, None, "")]
    member.leave(82, "")


def test_strangers_are_logged_at_most_once_a_minute(gang_of: GangOf, caplog: pytest.LogCaptureFixture) -> None:
    gang = gang_of(2)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            stranger = Stranger(gang.port)
            stranger.hello(attempt=1)
            stranger.all_heard()
    assert [record.message for record in caplog.records] == [
        "the gang link turned a connection away: it belongs to attempt 1, this is attempt 3"
    ]


def test_sixty_four_members_hear_of_a_failure_though_strangers_flood_the_leader(gang_of: GangOf) -> None:
    gang = gang_of(65, heartbeat=0.2, silence=30.0)
    flooding = threading.Event()
    floods = [0] * 4

    def flood(which: int) -> None:
        while not flooding.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", gang.port), timeout=1) as end:
                end.sendall(NOISE)
                floods[which] += 1

    threads = [threading.Thread(target=flood, args=(which,), daemon=True) for which in range(len(floods))]
    for thread in threads:
        thread.start()
    gang.join_all()
    eventually(lambda: min(floods) > 50, "a flood")
    assert [gang.news(rank) for rank in gang.links] == [[]] * 65
    gang.links[64].leave(83, "hang")
    told = {gang.loss(rank) for rank in range(64)}
    flooding.set()
    for thread in threads:
        thread.join()
    assert told == {PeerLost(64, 83, "hang")}


def test_sixty_four_members_that_finish_together_are_no_loss_to_anybody(gang_of: GangOf) -> None:
    gang = gang_of(65, silence=30.0)
    gang.join_all()
    leaving = [threading.Thread(target=gang.links[rank].leave, args=(0, "done")) for rank in range(1, 65)]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join()
    assert sorted(left.rank for left in eventually(lambda: len(gang.news(0)) == 64 and gang.news(0), "all")) == [
        *range(1, 65)
    ]
    assert {left.code for left in gang.news(0)} == {0}
    assert not [news for rank in range(1, 65) for news in gang.news(rank) if isinstance(news, PeerLost)]


def test_a_silent_gang_of_one_member_and_many_strangers_still_finds_its_loss(gang_of: GangOf) -> None:
    gang = gang_of(3, silence=0.3)
    gang.join(1)
    gang.stand(1)
    crowd = [Stranger(gang.port) for _ in range(30)]
    gang.crash(1)
    assert gang.loss(0).rank == 1
    time_of_silence(gang)
    assert gang.news(0) == [gang.loss(0)]
    for idler in crowd:
        idler.close()
