"""Stage 3 begins with shares: no rank ever has the whole model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from forked import Forks

_PROGRAM = Path(__file__).parents[1] / "support" / "sharded_start.py"


@pytest.fixture(scope="module")
def answers(forks: Forks, tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    store = tmp_path_factory.mktemp("sharded") / "store"
    done = forks(_PROGRAM, store, tiny_flux)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def ranks(answers: list[Any]) -> list[dict[str, Any]]:
    started: list[dict[str, Any]] = answers[0]
    return started


@pytest.mark.deep
def test_while_it_loads_no_rank_has_more_than_one_whole_parameter(ranks: list[dict[str, Any]]) -> None:
    assert len(ranks) == 2
    assert all(0 < told["most"] == told["largest"] for told in ranks)


def test_one_rank_reads_the_weights_for_all(ranks: list[dict[str, Any]]) -> None:
    assert [told["read"] for told in ranks] == [ranks[0]["whole"], 0]


def test_the_shares_together_are_the_weights(ranks: list[dict[str, Any]]) -> None:
    assert all(told["same"] for told in ranks)


def test_the_attention_that_runs_is_seen_on_weights_in_shares(ranks: list[dict[str, Any]]) -> None:
    assert {told["attention"] for told in ranks} == {"aten::_scaled_dot_product_flash_attention_for_cpu"}


def test_where_the_storage_fails_the_rank_that_reads_the_others_end_as_its_victims(answers: list[Any]) -> None:
    assert sorted(answers[1:]) == [[0, 84], [1, 82]]
