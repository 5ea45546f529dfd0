"""The attention kernel that a job asks for is the one that runs, or the job is told why not."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import batch, distance, pair, passes  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.compute import attention  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

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
    _, model = pair()
    forward.install(model, attend=attention.attend_with(Attention.SDPA))
    with pytest.raises(
        ConfigurationError, match=r"Flash2 was to run, aten::_scaled_dot_product_flash_attention_for_cpu did"
    ):
        attention.assert_ran(Attention.FLASH2, lambda: passes(model, batch()))


def test_a_step_without_attention_is_no_proof() -> None:
    with pytest.raises(ConfigurationError, match="no fused kernel did"):
        attention.assert_ran(Attention.SDPA, lambda: None)


class Recorded(TorchDispatchMode):
    """Every operator that this thread dispatches, and what is done on the way to each."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.names: list[str] = []
        self._meanwhile = meanwhile

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._meanwhile()
        self.names.append(func.name())
        return func(*args, **kwargs or {})


def queries(device: str = "meta", *, tokens: int = 64) -> list[torch.Tensor]:
    """Query, key and value (2, tokens, 4, 128) that want gradients."""
    return [torch.zeros(2, tokens, 4, 128, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("kernel", [Attention.CUDNN, Attention.FLASH2, Attention.FLASH3, Attention.SDPA])
def test_while_a_kernel_is_called_another_thread_may_attend_as_it_likes(kernel: Attention) -> None:
    """The VAE in the thread that makes batches has heads of 512, which cuDNN and FlashAttention cannot serve."""
    wide = torch.randn(1, 1, 16, 512)

    def vae() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(wide, wide, wide)

    with ThreadPoolExecutor(1) as thread, Recorded(lambda: thread.submit(vae).result()) as recorded:
        attention.attend_with(kernel)(*queries(), None)
    assert recorded.names


OPERATORS = {Attention.CUDNN: "cudnn", Attention.FLASH2: "flash", Attention.FLASH3: "flash"}


@pytest.mark.parametrize("kernel", OPERATORS)
def test_a_kernel_is_its_operator_and_no_choice_of_torchs(kernel: Attention) -> None:
    given = queries()
    with Recorded() as recorded:
        found = attention.attend_with(kernel)(*given, None)
        assert found.shape == (2, 64, 512)
        found.sum().backward()
    operator = f"aten::_scaled_dot_product_{OPERATORS[kernel]}_attention"
    assert [name for name in recorded.names if "dot_product" in name] == [operator, f"{operator}_backward"]
    assert all(one.grad is not None for one in given)


@pytest.mark.parametrize("kernel", [Attention.CUDNN, Attention.FLASH2, Attention.SDPA])
@pytest.mark.parametrize(("tokens", "seen"), [(64, 64), (67, 67), (64, 13)])
def test_with_a_mask_a_gpu_runs_the_memory_efficient_kernel_both_ways(
    kernel: Attention, tokens: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never cuDNN's, whose gradients may be NaN there; torch's own choice on Hopper would be it."""
    monkeypatch.setattr(attention, "_MASKED", frozenset({"cuda", "meta"}))
    (query, *_), (_, *read) = queries(tokens=tokens), queries(tokens=seen)
    mask = torch.ones(2, 1, 1, seen, device="meta", dtype=torch.bool)
    with Recorded() as recorded:
        attention.attend_with(kernel)(query, *read, mask).sum().backward()
    operator = "aten::_scaled_dot_product_efficient_attention"
    assert [name for name in recorded.names if "dot_product" in name] == [operator, f"{operator}_backward"]


@pytest.mark.parametrize("tokens", [21, 40, 5], ids=["among themselves", "of fewer", "of more"])
def test_the_bias_of_a_mask_hides_the_same_keys_and_is_laid_out_as_the_kernel_wants(tokens: int) -> None:
    query, key = torch.randn(2, 3, tokens, 8), torch.randn(2, 3, 21, 8)
    mask = torch.ones(2, 1, 1, 21, dtype=torch.bool)
    mask[0, ..., 5:9] = False
    bias = attention._bias(mask, query)
    assert bias.shape == (2, 3, tokens, 21)
    assert [bias.stride(0) % 16, bias.stride(1), bias.stride(2), bias.stride(3)] == [0, 0, 0, 1]
    attend = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(attend(query, key, key, bias), attend(query, key, key, mask), rtol=0, atol=0)


def test_cudnn_is_refused_where_text_is_masked() -> None:
    with pytest.raises(ConfigurationError, match=r"CuDNN.*objective\.attentionMask.*Auto"):
        attention.choose(Attention.CUDNN, device=GPU, masked=True)


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [((7, 5), Attention.SDPA), ((8, 0), Attention.FLASH2), ((9, 0), Attention.FLASH2), ((10, 0), Attention.FLASH2)],
)
def test_auto_is_flash_attention_2_where_the_gpu_has_it(
    capability: tuple[int, int], kernel: Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    assert attention.choose(Attention.AUTO, device=GPU, masked=False) is kernel


def test_a_kernel_that_does_not_take_the_queries_says_so_and_names_the_way_out() -> None:
    with pytest.raises(ConfigurationError, match=r"CuDNN does not take this model's queries.*Auto or SDPA"):
        step(Attention.CUDNN)


def test_memory_that_runs_out_in_attention_is_no_word_about_the_kernel() -> None:
    class Full(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "dot_product" in func.name():
                raise torch.OutOfMemoryError("full")
            return func(*args, **kwargs or {})

    with Full(), pytest.raises(torch.OutOfMemoryError):
        step(Attention.SDPA)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("setting", [Attention.AUTO, Attention.CUDNN, Attention.FLASH2, Attention.SDPA])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seen", [640, 197])
def test_each_kernel_computes_attention_on_a_gpu_and_is_seen(setting: Attention, seen: int, *, masked: bool) -> None:
    if masked and setting in {Attention.CUDNN, Attention.FLASH2}:
        pytest.skip("refused with a mask")
    kernel = attention.choose(setting, device=GPU, masked=masked)
    queries = [
        torch.randn(2, tokens, 24, 128, device=GPU, dtype=torch.bfloat16, requires_grad=True)
        for tokens in (640, seen, seen)
    ]
    mask = torch.ones(2, 1, 1, seen, device=GPU, dtype=torch.bool)
    mask[..., 100:128] = False
    given = mask if masked else None
    exact = attention.attend_with(Attention.SDPA)(*(one.detach().float() for one in queries), given)

    def run() -> None:
        found = attention.attend_with(kernel)(*queries, given)
        assert distance(found, exact) < 0.02
        found.float().square().mean().backward()

    assert attention.assert_ran(kernel, run)
    assert all(torch.isfinite(one.grad).all() for one in queries)
