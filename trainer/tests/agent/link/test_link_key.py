"""A gang with a key: whoever does not know it has no part in the link, whatever it knows and however early it comes."""

from __future__ import annotations

import json
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from gangs import ATTEMPT, JOB_UID, KEY, Gang, Stranger

from oarlock_local.patience import eventually
from oarlock_trainer.agent.link import proof
from oarlock_trainer.agent.link.gang_link import GangLink
from oarlock_trainer.agent.link.protocol import Hello, Leave, Left, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    GangOf = Callable[..., Gang]

NO_PROOF = {"kind": "refused", "why": "it does not show that it knows the gang's key"}


@pytest.fixture
def gang_of(gang_of: GangOf) -> GangOf:
    return partial(gang_of, key=KEY)


def refusal(stranger: Stranger) -> dict[str, Any]:
    challenge, answer = stranger.heard(), stranger.heard()
    assert challenge["kind"] == "challenge"
    assert stranger.all_heard() == b""
    return answer


def test_a_squatter_that_comes_while_the_image_is_pulled_takes_no_place_from_the_true_member(gang_of: GangOf) -> None:
    gang = gang_of(3)
    gang.join(2)
    gang.stand(2)
    # All that a stranger can know, said as long as rank 1 is not there, and while it comes.
    for _ in range(50):
        squatter = Stranger(gang.port)
        squatter.hello(rank=1)
        assert refusal(squatter) == NO_PROOF
    late = Stranger(gang.port)
    late.hello(rank=1)
    gang.join(1)
    gang.stand(1)
    assert refusal(late) == NO_PROOF
    assert [gang.news(rank) for rank in range(3)] == [[], [], []]
    gang.links[1].leave(0, "done")
    assert eventually(lambda: gang.news(2), "news") == [Left(1, 0)]


def test_nobody_that_knows_another_attempts_key_is_of_this_gang(gang_of: GangOf) -> None:
    gang = gang_of(2)
    stranger = Stranger(gang.port, key=b"o" * 32)
    stranger.hello()
    assert stranger.heard() == NO_PROOF


def test_a_proof_that_was_overheard_is_worth_nothing_on_another_connection(gang_of: GangOf) -> None:
    gang = gang_of(2)
    hello = Hello(job_uid=JOB_UID, attempt=ATTEMPT, rank=1, agent="a")
    member, thief = Stranger(gang.port), Stranger(gang.port)
    proven = proof.signed(hello, KEY, member.heard()["nonce"])
    thief.socket.sendall(encode(proven))
    assert refusal(thief) == NO_PROOF
    member.socket.sendall(encode(proven))
    sealed = member.heard_line()
    assert proof.seal_of(proven, KEY, "another", leader=False).opened(sealed) is None


@pytest.mark.parametrize(
    "said", [b'{"kind":"leave","code":83,"why":"not sealed"}\n', b"0" * 32 + b' {"kind":"leave"}\n']
)
def test_words_that_somebody_puts_into_a_members_connection_are_not_heard(gang_of: GangOf, said: bytes) -> None:
    gang = gang_of(3)
    member = Stranger(gang.port, key=KEY)
    member.hello(rank=2)
    member.heard_line()
    member.socket.sendall(said)
    assert member.all_heard() == b"", "the connection ends, and nothing else does"
    again = Stranger(gang.port, key=KEY)
    again.hello(rank=2)
    assert again.heard_line(), "welcome"
    gang.join(1)
    gang.stand(1)
    assert gang.news(0) == gang.news(1) == []


def test_no_frame_can_be_said_twice_left_out_or_sent_back() -> None:
    hello = proof.signed(Hello(job_uid="u", attempt=1, rank=1, agent="a"), KEY, "challenge")
    ours, theirs = (proof.seal_of(hello, KEY, "challenge", leader=leader) for leader in (False, True))
    first, second = ours.closed(encode(Leave(0, "done")) * 2).splitlines()
    assert theirs.opened(first) == encode(Leave(0, "done")).rstrip()
    again, skipped = (proof.seal_of(hello, KEY, "challenge", leader=True) for _ in range(2))
    assert again.opened(first) is not None
    assert again.opened(first) is None
    assert skipped.opened(second) is None
    assert ours.opened(first) is None


def test_a_member_believes_no_leader_that_does_not_know_the_key() -> None:
    lies = [
        {"kind": "welcome"},
        {"kind": "lost", "rank": 0, "code": 80, "why": "lies"},
        {"kind": "left", "peers": [[0, 0]]},
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = GangLink(
            job_uid=JOB_UID, attempt=ATTEMPT, rank=1, nodes=2, leader="127.0.0.1", port=server.getsockname()[1],
            heartbeat=0.05, silence=1.0, key=KEY,
        )  # fmt: skip
        for start in ([], [{"kind": "challenge", "nonce": "n"}]):
            end, _ = server.accept()
            with end:
                end.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in start + lies))
                # It goes on to look for rank 0, instead of taking this for its end.
                again, _ = server.accept()
                again.close()
        assert member.news() == []
    member.leave(82, "")


def test_an_agent_that_has_no_key_finds_its_leader_refusing_it_by_name(gang_of: GangOf) -> None:
    gang = gang_of(2)
    gang.join(1, key=None)
    trouble = eventually(lambda: gang.links[1]._role._trouble, "a refusal")
    assert trouble == f"it refused: {NO_PROOF['why']}"
    assert gang.news(0) == []
