"""The arithmetic of FLUX.1, against the published table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.flops import (
    attention_flops,
    matrix_flops,
    model_flops_utilization,
    peak_flops,
    training_flops,
)


@pytest.mark.parametrize(
    ("pixels", "text", "teraflops"), [(256, 256, 20.4), (512, 512, 64.4), (768, 512, 125.7), (1024, 512, 223.1)]
)
def test_training_flops_match_the_table_for_the_12_billion_model(pixels: int, text: int, teraflops: float) -> None:
    flops = training_flops(FLUX1.published, tokens=(pixels // 16) ** 2 + text)
    assert flops / 1e12 == pytest.approx(teraflops, abs=0.06)


def test_frozen_matrices_have_no_gradients_of_their_own_and_attention_has_all_of_its() -> None:
    """At 1024 pixels, from the shares of the table: 59.49 TFLOP of matrices and 14.87 of attention in a forward pass."""
    shape: Any = {"shape": FLUX1.published, "tokens": 4608}
    assert training_flops(**shape, frozen=True) / 1e12 == pytest.approx(2 * 59.49 + 3 * 14.87, abs=0.05)
    more = training_flops(**shape, frozen=True, regularizes=True) - training_flops(**shape, frozen=True)
    assert more == pytest.approx(matrix_flops(**shape) + attention_flops(**shape))


def test_fifteen_seconds_a_step_with_eight_pictures_per_h100_is_twelve_percent() -> None:
    flops = 8 * 32 * training_flops(FLUX1.published, tokens=4608)
    peak = peak_flops("NVIDIA H100 80GB HBM3")
    assert peak is not None
    assert model_flops_utilization(flops=flops, seconds=15.0, devices=32, peak=peak) == pytest.approx(0.12, abs=0.001)


def test_no_peak_is_made_up_for_an_unknown_gpu() -> None:
    assert peak_flops("Matrox Mystique") is None


def test_the_longest_matching_name_decides() -> None:
    assert peak_flops("NVIDIA GB200") == 2250e12


def test_tokens_count_in_the_blocks_that_they_go_through_alone() -> None:
    double, single = FLUX1.published.kinds
    apart = replace(FLUX1.published, kinds=(replace(double, text=False), replace(single, image=False)))
    found = matrix_flops(apart, tokens=4608, text_share=512 / 4608)
    assert found == pytest.approx(2.0 * (double.number * double.met * 4096 + single.number * single.met * 512))
    found = attention_flops(apart, tokens=4608, text_share=512 / 4608)
    assert found == pytest.approx(4.0 * 3072 * (double.number * 4096**2 + single.number * 512**2))
