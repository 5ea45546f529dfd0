"""The objective: losses, their weights, and the noise levels that they are taken at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oarlock_api.objective import Loss, Objective, Weighting
from oarlock_trainer.models.family import Shift
from oarlock_trainer.models.objective import noise_bins, schedule
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.draws import SampleDraws, sample_draws

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers.training_utils import compute_loss_weighting_for_sd3  # noqa: E402

from oarlock_trainer.models.objective import loss  # noqa: E402

AT_16_TOKENS: Any = {"image_tokens": 16, "automatic": Shift(few_tokens=256, low=0.5, many_tokens=4096, high=1.15)}


def draws(**values: float) -> SampleDraws:
    middling = {"normal": 0.0, "uniform": 0.5, "guidance": 0.5, "dropout": 0.5, "caption": 0.0}
    return SampleDraws(**middling | values, noise=np.zeros(1))


@pytest.mark.parametrize("measure", list(Loss))
def test_every_loss_is_zero_only_for_a_perfect_prediction(measure: Loss) -> None:
    target = torch.randn(2, 5, 7)
    assert loss.error(target, target, measure).tolist() == [0.0, 0.0]
    assert float(loss.error(target + 1.0, target, measure).min()) > 0.05


@pytest.mark.parametrize("measure", list(Loss))
def test_a_mask_of_ones_changes_no_bit_of_loss_and_gradient(measure: Loss) -> None:
    target, ones = torch.randn(3, 16, 8, 6), torch.ones(3, 1, 8, 6, dtype=torch.bfloat16)
    prediction = torch.randn(3, 16, 8, 6, requires_grad=True)
    plain, masked = loss.error(prediction, target, measure), loss.error(prediction, target, measure, ones)
    assert torch.equal(plain, masked)
    own, other = (torch.autograd.grad(one.mean(), prediction)[0] for one in (plain, masked))
    assert torch.equal(own, other)


def test_a_pixel_that_counts_weighs_the_same_however_much_of_the_others_counts() -> None:
    target, mask = torch.zeros(3, 4, 8, 8), torch.zeros(3, 1, 8, 8)
    mask[0, 0, 2, 3] = 1.0
    mask[1, 0, :4] = mask[1, 0, 2, 3] = 1.0
    prediction = torch.randn(1, 4, 8, 8).expand(3, -1, -1, -1).clone().requires_grad_()
    losses = loss.error(prediction, target, Loss.MSE, mask)
    # The mean over all elements, as SimpleTuner has it: a black mask teaches nothing, and is no division by zero.
    assert float(losses[0].detach()) == pytest.approx(float(prediction[0, :, 2, 3].detach().square().sum()) / (4 * 64))
    assert float(losses[2].detach()) == 0.0
    (gradient,) = torch.autograd.grad(losses.sum(), prediction)
    assert torch.equal(gradient[0, :, 2, 3], gradient[1, :, 2, 3])
    assert torch.equal(gradient != 0, (mask != 0).expand_as(gradient))


def test_grey_counts_by_its_share() -> None:
    target, prediction = torch.zeros(1, 4, 2, 2), torch.ones(1, 4, 2, 2)
    grey = torch.full((1, 1, 2, 2), 0.25, dtype=torch.bfloat16)
    assert loss.error(prediction, target, Loss.MSE, grey).tolist() == [0.25]


def test_the_noise_level_is_a_shifted_sigmoid() -> None:
    objective = Objective(timestep_shift=3.0)
    assert schedule.noise_level(objective, draws(normal=0.0), **AT_16_TOKENS) == pytest.approx(0.75)
    plain = Objective(timestep_shift=1.0, sigmoid_scale=2.0)
    assert schedule.noise_level(plain, draws(normal=1.0), **AT_16_TOKENS) == pytest.approx(1 / (1 + math.exp(-2.0)))


def test_a_beta_noise_level_is_the_samples_own_whenever_it_is_asked_for() -> None:
    objective = Objective.model_validate({"timesteps": "Beta", "betaAlpha": 8.0, "betaBeta": 2.0, "timestepShift": 1.0})
    levels = [
        schedule.noise_level(objective, sample_draws(3, index, (1, 2, 2)), **AT_16_TOKENS) for index in range(800)
    ]
    again = schedule.noise_level(objective, sample_draws(3, 7, (1, 2, 2)), **AT_16_TOKENS)
    assert again == levels[7]
    assert np.mean(levels) == pytest.approx(0.8, abs=0.02)
    assert np.std(levels) == pytest.approx(math.sqrt(8 * 2 / (10**2 * 11)), abs=0.02)


@pytest.mark.parametrize("timesteps", ["Sigmoid", "Uniform", "Beta"])
def test_noise_levels_stay_within_their_range_in_their_order(timesteps: str) -> None:
    everywhere = Objective.model_validate({"timesteps": timesteps})
    within = Objective.model_validate({"timesteps": timesteps, "minNoise": 0.2, "maxNoise": 0.6})
    drawn = [sample_draws(3, index, (1, 2, 2)) for index in range(200)]
    plain, found = (
        [schedule.noise_level(objective, one, **AT_16_TOKENS) for one in drawn] for objective in (everywhere, within)
    )
    assert 0.2 <= min(found) < max(found) <= 0.6
    assert max(plain) > 0.6
    assert np.argsort(plain).tolist() == np.argsort(found).tolist()


@pytest.mark.parametrize("weighting", list(Weighting))
def test_weights_of_noise_levels_are_those_of_diffusers(weighting: Weighting) -> None:
    words = {Weighting.NONE: "none", Weighting.SIGMA_SQRT: "sigma_sqrt", Weighting.COS_MAP: "cosmap"}
    losses, sigmas = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.1, 0.5, 0.9])
    expected = (compute_loss_weighting_for_sd3(words[weighting], sigmas) * losses).mean()
    assert float(loss.weighted(losses, sigmas, weighting)) == pytest.approx(float(expected))


def test_losses_by_noise_level_add_up_to_the_whole_and_leave_out_bins_without_samples() -> None:
    losses, sigmas = torch.tensor([1.0, 2.0, 4.0, 7.0]), torch.tensor([0.0, 0.19, 0.2, 1.0])
    halves = [noise_bins.sums(losses[part], sigmas[part]) for part in (slice(0, 2), slice(2, 4))]
    whole = (halves[0] + halves[1]).tolist()
    assert noise_bins.means(whole) == {"0.0-0.2": 1.5, "0.2-0.4": 4.0, "0.8-1.0": 7.0}
    assert sum(whole[: noise_bins.BINS]) == float(losses.sum())
    assert sum(whole[noise_bins.BINS :]) == len(losses)


def test_a_loss_that_is_not_finite_stays_in_its_bin() -> None:
    found = noise_bins.means(noise_bins.sums(torch.tensor([math.nan, 2.0]), torch.tensor([0.1, 0.5])).tolist())
    assert math.isnan(found.pop("0.0-0.2"))
    assert found == {"0.4-0.6": 2.0}


def test_random_guidance_lies_between_its_bounds() -> None:
    objective = Objective.model_validate({"guidance": {"mode": "Random", "min": 1, "max": 3}})
    assert schedule.guidance(objective, draws(guidance=0.25)) == 1.5
