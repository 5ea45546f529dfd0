"""Who may commit into an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.layout import OWNER, Owner, parse_owner
from oarlock_api.contract.rounds import serial
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.runtime.errors import FencedError

if TYPE_CHECKING:
    from pathlib import Path


def fence(output: Path, uid: str, attempt: int) -> Fence:
    return Fence(output, Owner(uid, attempt))


def take(found: Fence, *valid: str) -> Fence:
    found.check_free(found.previous())
    found.take(valid)
    return found


def test_a_newer_attempt_takes_over_and_the_older_may_commit_no_more(tmp_path: Path) -> None:
    old = take(fence(tmp_path, "job", 1))
    old.check()
    new = take(fence(tmp_path, "job", 2))
    new.check()
    with pytest.raises(FencedError, match="attempt 2"):
        old.check()


def test_an_older_attempt_cannot_take_over(tmp_path: Path) -> None:
    take(fence(tmp_path, "job", 2))
    with pytest.raises(FencedError, match="attempt 2 owns"):
        take(fence(tmp_path, "job", 1))


def test_the_same_attempt_may_start_again(tmp_path: Path) -> None:
    take(fence(tmp_path, "job", 2))
    take(fence(tmp_path, "job", 2)).check()


def in_round(output: Path, number: int) -> Fence:
    return Fence(output, Owner("job", 1, number))


def test_a_later_round_of_the_same_attempt_takes_over_and_the_earlier_may_commit_no_more(tmp_path: Path) -> None:
    first = take(in_round(tmp_path, 1))
    second = take(in_round(tmp_path, 2))
    second.check()
    with pytest.raises(FencedError, match="taken over by round 2 of attempt 1 of job UID job"):
        first.check()
    with pytest.raises(FencedError, match=r"round 2 of attempt 1 owns .*, this is attempt 1"):
        take(in_round(tmp_path, 1))
    take(fence(tmp_path, "job", 2)).check()


def test_a_round_that_goes_on_from_memory_raises_the_fence_and_trusts_what_the_one_before_did(tmp_path: Path) -> None:
    first = take(in_round(tmp_path, 1), "step-20-a0")
    third = in_round(tmp_path, 3)
    third.renew()
    third.check()
    assert third.previous().trusted == ("step-20-a0",)
    with pytest.raises(FencedError, match="round 3"):
        first.check()


def test_a_later_leaders_round_takes_over_from_one_of_the_same_number_that_it_never_heard_of(tmp_path: Path) -> None:
    unheard = take(in_round(tmp_path, serial(1, 3)))
    in_round(tmp_path, serial(2, 3)).renew()
    with pytest.raises(FencedError, match="taken over by round 3 of attempt 1"):
        unheard.check()
    with pytest.raises(FencedError, match="taken over by"):
        unheard.renew()


@pytest.mark.parametrize("owner", [Owner("job", 1, 3), Owner("job", 2), Owner("other", 1), None])
def test_a_round_that_goes_on_from_memory_takes_nothing_from_anybody_but_an_earlier_round(
    tmp_path: Path, owner: Owner | None
) -> None:
    if owner:
        Fence(tmp_path, owner).take(["step-5-a1"])
    with pytest.raises(FencedError, match="taken over by"):
        in_round(tmp_path, 2).renew()
    assert in_round(tmp_path, 2).previous().owner == owner


def test_another_job_takes_over_only_what_is_finished(tmp_path: Path) -> None:
    first = take(fence(tmp_path, "one", 3))
    with pytest.raises(FencedError, match=r"another output\.directory"):
        take(fence(tmp_path, "two", 1))
    first.finish(100)
    take(fence(tmp_path, "two", 1)).check()
    with pytest.raises(FencedError, match="another job"):
        take(fence(tmp_path, "three", 1))


def test_an_unfinished_job_of_the_same_name_that_is_known_to_be_gone_is_succeeded_and_fenced(tmp_path: Path) -> None:
    gone = take(Fence(tmp_path, Owner("one", 3), job="lab/flux", cluster="here"))
    take(Fence(tmp_path, Owner("two", 1), job="lab/flux", gone="lab/flux", cluster="here")).check()
    with pytest.raises(FencedError, match="taken over"):
        gone.check()


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ("there", "here", "another cluster"),
        ("", "here", "a cluster that the fence cannot name"),
        ("there", "", "a cluster that this pod cannot name"),
        ("", "", "a cluster that this pod cannot name"),
    ],
)
def test_of_two_clusters_on_one_export_neither_takes_the_output_of_the_others_job_of_the_same_name(
    tmp_path: Path, theirs: str, ours: str, told: str
) -> None:
    living = take(Fence(tmp_path, Owner("one", 3), job="lab/flux", gone="lab/flux", cluster=theirs))
    with pytest.raises(FencedError, match=told):
        take(Fence(tmp_path, Owner("two", 1), job="lab/flux", gone="lab/flux", cluster=ours))
    living.check()
    living.finish(100)
    take(Fence(tmp_path, Owner("two", 1), job="lab/flux", gone="lab/flux", cluster=ours)).check()


def test_nobody_is_known_to_be_gone_but_the_job_of_that_name_and_namespace(tmp_path: Path) -> None:
    take(Fence(tmp_path, Owner("one", 3), job="other/flux")).check()
    with pytest.raises(FencedError, match="another job"):
        take(Fence(tmp_path, Owner("two", 1), job="lab/flux", gone="lab/flux"))


def test_a_finished_job_that_was_restarted_by_its_successor_protects_the_successor(tmp_path: Path) -> None:
    take(fence(tmp_path, "one", 1)).finish(5)
    take(fence(tmp_path, "two", 1))
    with pytest.raises(FencedError):
        take(fence(tmp_path, "one", 2))


def test_a_fence_that_was_removed_stops_the_writer(tmp_path: Path) -> None:
    mine = take(fence(tmp_path, "job", 1))
    (tmp_path / OWNER).unlink()
    with pytest.raises(FencedError, match="removed the fence"):
        mine.check()


def test_the_file_is_the_contracts_and_lists_what_was_valid(tmp_path: Path) -> None:
    mine = take(fence(tmp_path, "job", 4), "step-20-a3", "step-10-a3")
    assert parse_owner((tmp_path / OWNER).read_text()) == Owner("job", 4)
    assert mine.previous().trusted == ("step-20-a3", "step-10-a3")


def test_hundreds_of_checkpoints_do_not_outgrow_the_contracts_limit(tmp_path: Path) -> None:
    take(fence(tmp_path, "8" * 36, 10**6), *(f"step-{10**9 + step}-a{10**6}" for step in range(1000)))
    assert parse_owner((tmp_path / OWNER).read_text()).attempt == 10**6


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jobUid": "x"}', b"\xff\xfe"])
def test_a_file_that_no_oarlock_wrote_blocks_nobody(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / OWNER
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    take(fence(tmp_path, "job", 1)).check()


def test_leftovers_of_a_crashed_writer_block_nobody(tmp_path: Path) -> None:
    path = tmp_path / OWNER
    path.parent.mkdir(parents=True)
    (path.parent / ".tmp-owner-host-1").write_text("half")
    take(fence(tmp_path, "job", 1)).check()
