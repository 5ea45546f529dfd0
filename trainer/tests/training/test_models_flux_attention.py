"""The attention kernel that a job asks for is the one that runs, or the job is told why not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from oarlock_trainer import warm
from oarlock_trainer.errors import ConfigurationError

warm.settle_environment()
sys.path.append(str(Path(__file__).parent / "support"))
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import batch, distance, pair, passes  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.flux import attention, forward  # noqa: E402

CPU, GPU = torch.device("cpu"), torch.device("cuda")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")


@pytest.mark.parametrize("setting", [Attention.AUTO, Attention.SDPA])
@pytest.mark.parametrize("masked", [False, True])
def test_on_the_cpu_it_is_torchs_own_choice(setting: Attention, *, masked: bool) -> None:
    assert attention.choose(setting, device=CPU, masked=masked) is Attention.SDPA


@pytest.mark.parametrize("setting", [Attention.CUDNN, Attention.FLASH2, Attention.FLASH3])
def test_a_kernel_for_gpus_is_refused_on_the_cpu(setting: Attention) -> None:
    with pytest.raises(ConfigurationError, match=rf"{setting} needs a GPU: set training\.attention to Auto"):
        attention.choose(setting, device=CPU, masked=False)


@pytest.mark.parametrize("setting", [Attention.FLASH2, Attention.FLASH3])
def test_a_kernel_without_masks_is_refused_where_text_is_masked(setting: Attention) -> None:
    with pytest.raises(ConfigurationError, match=r"objective\.attentionMask"):
        attention.choose(setting, device=GPU, masked=True)


def test_auto_takes_a_path_that_knows_masks() -> None:
    assert attention.choose(Attention.AUTO, device=GPU, masked=True) is Attention.SDPA


@pytest.mark.skipif(
    importlib.util.find_spec("flash_attn_interface") is not None, reason="FlashAttention 3 is installed"
)
def test_flash3_without_its_package_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="flash_attn_interface"):
        attention._activate_flash3((9, 0))


def test_flash3_is_for_hopper_gpus() -> None:
    with pytest.raises(ConfigurationError, match="Hopper"):
        attention._activate_flash3((8, 0))


def step(kernel: Attention, *, masked: bool = False) -> str:
    """Run a step with `kernel`'s way to attend, and have it looked at."""
    _, model = pair()
    forward.install(model, attend=attention.attend_with(kernel))
    return attention.assert_ran(kernel, lambda: passes(model, batch(masked=masked)))


@pytest.mark.parametrize("masked", [False, True])
def test_the_operator_that_ran_is_told(*, masked: bool) -> None:
    assert step(Attention.SDPA, masked=masked) == "aten::_scaled_dot_product_flash_attention_for_cpu"


def test_another_kernel_than_the_chosen_one_stops_the_job() -> None:
    """On the CPU torch has an operator of another name behind the same switch."""
    with pytest.raises(
        ConfigurationError, match=r"Flash2 was to run, aten::_scaled_dot_product_flash_attention_for_cpu did"
    ):
        step(Attention.FLASH2)


def test_a_step_without_attention_is_no_proof() -> None:
    with pytest.raises(ConfigurationError, match="no fused kernel did"):
        attention.assert_ran(Attention.SDPA, lambda: None)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("setting", [Attention.AUTO, Attention.CUDNN, Attention.FLASH2, Attention.SDPA])
@pytest.mark.parametrize("masked", [False, True])
def test_each_kernel_computes_attention_on_a_gpu_and_is_seen(setting: Attention, *, masked: bool) -> None:
    if masked and setting is Attention.FLASH2:
        pytest.skip("takes no masks")
    kernel = attention.choose(setting, device=GPU, masked=masked)
    queries = [torch.randn(2, 640, 24, 128, device=GPU, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    mask = torch.ones(2, 1, 1, 640, device=GPU, dtype=torch.bool)
    mask[..., 100:128] = False
    given = mask if masked else None
    exact = attention.attend_with(Attention.SDPA)(*(one.detach().float() for one in queries), given)

    def run() -> None:
        found = attention.attend_with(kernel)(*queries, given)
        assert distance(found, exact) < 0.02
        found.float().square().mean().backward()

    assert attention.assert_ran(kernel, run)
    assert all(torch.isfinite(one.grad).all() for one in queries)
