"""For how long a round goes on although pods of it were asked to go."""

from __future__ import annotations

import pytest

from oarlock_api.contract.rounds import SurgePod
from oarlock_trainer.agent.rounds.model import Report
from oarlock_trainer.agent.rounds.surge import NOTICE_SECONDS, Surge, Surging, Waiting


def leaving(rank: int = 1, incarnation: int = 1) -> Report:
    return Report(rank=rank, agent=f"{rank}-{incarnation}", incarnation=incarnation, sequence=1, leaving=True)


def told(*pods: SurgePod, at: float = 0.0) -> Surge:
    surge = Surge()
    surge.hear(Surging(pods, at))
    return surge


def test_an_operator_that_never_spoke_of_surge_pods_makes_none() -> None:
    assert not Surge().holds([leaving()], 0.0)


def test_it_waits_a_moment_for_the_operators_word() -> None:
    surge = told()
    assert surge.holds([leaving()], 100.0)
    assert surge.holds([leaving()], 100.0 + NOTICE_SECONDS - 0.1)
    assert not surge.holds([leaving()], 100.0 + NOTICE_SECONDS)


def test_it_goes_on_until_the_next_pod_is_ready() -> None:
    surge = told(SurgePod(1, 2, 150), at=100.0)
    assert surge.holds([leaving()], 249.0)
    surge.hear(Waiting(frozenset({(1, 2)})))
    assert not surge.holds([leaving()], 110.0)


def test_or_until_the_pods_grace_is_needed_for_the_save() -> None:
    surge = told(SurgePod(1, 2, 150), at=100.0)
    surge.holds([leaving()], 100.0)
    assert not surge.holds([leaving()], 250.0)
    surge.hear(Surging((SurgePod(1, 2, 0),), 120.0))
    assert not surge.holds([leaving()], 120.0), "the next pod was lost"


def test_of_several_all_next_pods_are_waited_for_and_none_once_one_can_wait_no_longer() -> None:
    surge = told(SurgePod(1, 2, 150), SurgePod(2, 3, 40), at=0.0)
    both = [leaving(1), leaving(2)]
    surge.hear(Waiting(frozenset({(1, 2)})))
    assert surge.holds(both, 10.0)
    assert not surge.holds(both, 40.0)
    surge.hear(Waiting(frozenset({(1, 2), (2, 3)})))
    assert not surge.holds(both, 10.0)


@pytest.mark.parametrize("pod", [leaving(0), leaving(1, incarnation=2)], ids=["rank 0", "the surge pod itself"])
def test_what_is_said_of_others_holds_no_round(pod: Report) -> None:
    surge = told(SurgePod(1, 2, 150), SurgePod(0, 2, 150))
    surge.holds([pod], 0.0)
    assert not surge.holds([pod], NOTICE_SECONDS)


def test_a_later_pod_of_the_rank_has_its_own_moment() -> None:
    surge = told()
    assert surge.holds([leaving()], 0.0)
    assert not surge.holds([leaving()], NOTICE_SECONDS)
    assert surge.holds([leaving(incarnation=2)], NOTICE_SECONDS)
