"""What is counted on the meta device is what real runs on the CPU compute and keep, for blocks of six families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.plan.counting.arguments import Shapes, call_arguments
from oarlock_trainer.ranks import preload

from .tiny import ALL, FLUX1, Model

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from oarlock_trainer.plan.counting.calls import Call, calls, make, storage  # noqa: E402
from oarlock_trainer.plan.counting.flops import flops_of  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import kept  # noqa: E402

ONE = Shapes(rows=8, columns=8, text=32)
TWO = Shapes(rows=8, columns=8, text=32, batch=2)
NAMES = [f"{one.module}-{one.grown}" for one in ALL]
MODELS = pytest.mark.parametrize("model", ALL, ids=NAMES)
MODELS_BY_TIER = pytest.mark.parametrize("model", quick_first(ALL, 2), ids=NAMES)
"""For what is the same code for every model."""
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm"}


def arguments(built: Any, model: Model, *, device: str, shapes: Shapes = ONE) -> dict[str, Any]:
    return call_arguments(model.description, shapes, built.config, device=torch.device(device), dtype=torch.float32)


def block_of(model: Model, *, device: str, shapes: Shapes = ONE) -> tuple[Any, Call]:
    """The block that grows, alone, and what the model calls it with."""
    made = make(model.load(), model.config, device=device, dtype=torch.float32)
    called = calls(made, arguments(made.model, model, device=device, shapes=shapes))
    (kind,) = (one for one in made.kinds if one.name == model.grown)
    return made.kinds[kind], called[kind]


def of_one_more_block(model: Model, measured: Callable[[Any, dict[str, Any]], int], shapes: Shapes = ONE) -> int:
    """What a real run of the whole model measures, less that of the model with a block less."""

    def of(one: Model) -> int:
        built = one.load()(**one.config).train()
        return measured(built, arguments(built, one, device="cpu", shapes=shapes))

    return of(model.with_more(2)) - of(model.with_more(1))


def kept_really(built: Any, given: dict[str, Any]) -> int:
    """Bytes that autograd saves in a forward pass, without parameters."""
    saved: dict[int, Any] = {}

    def save(tensor: Any) -> Any:
        saved[storage(tensor)] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        result = built(**given)
    del result
    weights = {storage(one) for one in built.parameters()}
    return sum(one.untyped_storage().nbytes() for place, one in saved.items() if place not in weights)


@MODELS
@pytest.mark.parametrize("shapes", [ONE, TWO], ids=["one", "two"])
def test_a_block_keeps_what_one_more_block_of_a_real_model_keeps(model: Model, shapes: Shapes) -> None:
    with gpu_kernels(norms=False):  # the CPU has no fused norm
        counted = kept(*block_of(model, device="meta", shapes=shapes))
    assert counted == of_one_more_block(model, kept_really, shapes)
    assert counted > 0


@MODELS
def test_a_recomputed_block_keeps_what_goes_from_block_to_block(model: Model) -> None:
    def kept_by_checkpoints(built: Any, given: dict[str, Any]) -> int:
        held: dict[int, int] = {}

        def recompute(function: Any, *positional: Any) -> Any:
            for one in positional:
                if isinstance(one, torch.Tensor) and one.requires_grad:
                    held[storage(one)] = one.untyped_storage().nbytes()
            return checkpoint(function, *positional, use_reentrant=False)

        built.enable_gradient_checkpointing(recompute)
        alive.append(built(**given))  # a storage that is freed gives its place to another one
        return sum(held.values())

    alive: list[Any] = []
    _, call = block_of(model, device="meta")
    assert call.own_bytes == of_one_more_block(model, kept_by_checkpoints)


@MODELS_BY_TIER
def test_products_are_those_that_a_profiler_sees(model: Model) -> None:
    block, call = block_of(model, device="cpu")
    positional, named = call.leaves()
    with sdpa_kernel(SDPBackend.MATH):  # products of its own, instead of a kernel that a profiler does not look into
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as forward:
            result = block(*positional, **named)
        results = [one for one in (result if isinstance(result, tuple) else (result,)) if one is not None]
        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as backward:
            torch.autograd.backward(results, [torch.ones_like(one) for one in results])
    seen = [sum(one.flops for one in run.key_averages() if one.key in _PRODUCTS) for run in (forward, backward)]
    with gpu_kernels():
        found = flops_of(*block_of(model, device="meta"))
    assert seen[0] == found.forward.matrices + found.forward.attention
    assert seen[1] == found.backward.matrices + 2 * found.forward.attention  # with nothing computed once more
    assert found.backward.attention == 5 * found.forward.attention // 2  # as FlashAttention does


@MODELS_BY_TIER
def test_one_more_block_of_a_real_model_takes_the_flops_of_a_block(model: Model) -> None:
    def both_passes(built: Any, given: dict[str, Any]) -> int:
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            result = built(**given)[0]
            one = result[0] if isinstance(result, list) else result
            one.square().mean().backward()
        return int(counter.get_total_flops())

    with gpu_kernels():
        found = flops_of(*block_of(model, device="meta"))
    assert of_one_more_block(model, both_passes) == (
        found.forward.matrices + found.backward.matrices + 3 * found.forward.attention
    )


@MODELS_BY_TIER
def test_frozen_weights_spare_the_gradients_of_weights_alone(model: Model) -> None:
    with gpu_kernels():
        found = flops_of(*block_of(model, device="meta"))
    assert found.frozen.attention == found.backward.attention
    assert 0 < found.frozen.matrices <= found.forward.matrices < found.backward.matrices


@MODELS_BY_TIER
def test_two_samples_cost_twice_as_much_as_one_and_keep_no_less(model: Model) -> None:
    with gpu_kernels():
        (block, call), (other, others) = block_of(model, device="meta"), block_of(model, device="meta", shapes=TWO)
        one, two = flops_of(block, call), flops_of(other, others)
        assert two.forward.matrices == 2 * one.forward.matrices
        assert two.backward.attention == 2 * one.backward.attention
        assert others.own_bytes == 2 * call.own_bytes
        assert kept(other, others) >= 2 * kept(block, call)


def test_several_samples_of_flux1_keep_a_width_more_than_one_in_a_block_of_two_streams() -> None:
    """Image and text are parts of attention's result, and lie in one piece only where there is one sample."""
    with gpu_kernels():
        alone, both = (kept(*block_of(FLUX1, device="meta", shapes=shapes)) for shapes in (ONE, TWO))
    assert both - 2 * alone == 2 * 4 * (ONE.image + ONE.text) * 32


def test_a_gpus_norm_keeps_its_input_as_it_is() -> None:
    """In the type that it has: the CPU's keeps two float32 copies instead. A block of FLUX.1 has norms of two widths."""
    made = make(FLUX1.load(), FLUX1.config)
    given = call_arguments(FLUX1.description, ONE, made.model.config, device=torch.device("meta"), dtype=torch.bfloat16)
    called = calls(made, given)
    found = {}
    for norms in (False, True):
        with gpu_kernels(norms=norms):
            found[norms] = {kind.name: kept(block, called[kind]) for kind, block in made.kinds.items()}
    for name, with_copies in found[False].items():
        assert with_copies - found[True][name] == 2 * (ONE.image + ONE.text) * 32 * (2 * 4 - 2)
