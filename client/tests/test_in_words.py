"""Names of the API that pages and commands show: each has its words, and none of a later release breaks a page."""

from __future__ import annotations

import pytest

from oarlock import in_words
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.history import RecoveryStage


def test_every_stage_of_a_recovery_is_told_in_words() -> None:
    own = {RecoveryStage.STOPPING, RecoveryStage.SUSPENDING, RecoveryStage.SUSPENDED}  # causes of their own
    assert set(in_words.BUSY_WITH) == {stage.value for stage in set(RecoveryStage) - own}


def test_every_verdict_of_a_gpu_is_told_in_words() -> None:
    assert [verdict for verdict in GpuVerdict if in_words.verdict(verdict) == verdict] == []


@pytest.mark.parametrize("name", ["status.lastFault", "status.rounds", "status.message", "status"])
def test_what_stands_in_the_status_was_said_by_the_operator(name: str) -> None:
    assert in_words.source(name) == "the operator"


def test_names_of_a_later_release_are_shown_as_they_are() -> None:
    assert (in_words.stage("Prefetch"), in_words.kind("Doubt"), in_words.verdict("Cool")) == (
        "prefetch",
        "Doubt",
        "Cool",
    )
    assert in_words.source("probe xid") == "probe xid"
