"""What a block keeps for the backward pass, asked of autograd on the CPU and of a GPU's allocator."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import kept_builds
import pytest

from oarlock_api.engine import Attention, Compile
from oarlock_trainer.plan.activations import kept_bytes, width_bytes, widths, working_bytes
from oarlock_trainer.plan.encoding import vae_bytes
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import AutoencoderKL  # noqa: E402
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel  # noqa: E402

from oarlock_trainer.models.compute.attention import attend_with, choose  # noqa: E402
from oarlock_trainer.models.compute.compiled import compile_blocks  # noqa: E402
from oarlock_trainer.models.flux import forward as forward_pass  # noqa: E402
from oarlock_trainer.models.flux.architecture import shaped  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DOUBLE, SINGLE = FLUX1.published.kinds
_BFLOAT16 = torch.bfloat16
_TEXT, _SIDE = 128, 32
_TOKENS = _TEXT + _SIDE**2
_SAMPLES = 2
"""Of one alone a compiled double block keeps less."""


def make_transformer(*, double: int, single: int, heads: int) -> Any:
    return torch.nn.Module.to(
        FluxTransformer2DModel(
            num_layers=double, num_single_layers=single, num_attention_heads=heads, joint_attention_dim=64,
            pooled_projection_dim=64, guidance_embeds=True,
        ),
        _BFLOAT16,
    )  # fmt: skip


def forward(transformer: Any, *, text: int, side: int, samples: int = 1, device: str = "cpu") -> Any:
    def some(*shape: int) -> Any:
        return torch.rand(*shape, dtype=_BFLOAT16, device=device)

    return transformer(
        hidden_states=some(samples, side**2, 64), encoder_hidden_states=some(samples, text, 64),
        pooled_projections=some(samples, 64), timestep=some(samples), guidance=some(samples),
        img_ids=torch.zeros(side**2, 3, device=device), txt_ids=torch.zeros(text, 3, device=device), return_dict=False,
    )[0]  # fmt: skip


def widths_kept(
    *,
    double: int,
    single: int,
    prepare: Callable[[Any], None] = lambda _model: None,
    dtypes: tuple[Any, ...] = (_BFLOAT16,),
) -> float:
    """Values of 2 bytes a token and width that autograd keeps of the whole model, weights apart."""
    heads = 4
    transformer = make_transformer(double=double, single=single, heads=heads)
    prepare(transformer)
    weights = {weight.untyped_storage().data_ptr() for weight in transformer.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward(transformer, text=_TEXT, side=_SIDE, samples=_SAMPLES)
    sizes = [
        tensor.untyped_storage().nbytes()
        for place, tensor in kept.items()
        if place not in weights and tensor.dtype in dtypes
    ]
    return sum(sizes) / (_SAMPLES * _TOKENS * heads * 128 * 2)


@pytest.mark.deep
def test_an_eager_block_keeps_no_more_than_is_planned_for() -> None:
    planned = widths(DOUBLE.kept, compiled=False)
    one_each = widths_kept(double=1, single=1)
    for more in ({"double": 2, "single": 1}, {"double": 1, "single": 2}):
        norms = 2  # queries and keys as they come into their norms, which the CPU keeps as float32
        assert 0.7 * planned < widths_kept(**more) - one_each + norms <= planned


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """torch's compiler, switched off in this process, with what is set for it undone afterwards."""
    import torch._functorch.config as functorch  # noqa: PLC0415 - seconds that other tests need not pay
    import torch._inductor.config as inductor  # noqa: PLC0415
    from torch._dynamo import config, reset  # noqa: PLC0415

    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for name, value in kept_builds.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    reset()
    with (
        config.patch(disable=True, recompile_limit=8),
        inductor.patch({"compile_threads": 1, "cpp.cxx": (None, kept_builds.ENVIRONMENT["CXX"])}),
        functorch.patch(activation_memory_budget=1.0),
    ):
        yield
    reset()


@pytest.mark.deep
@pytest.mark.timeout(900)  # code is built for both kinds of blocks
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs a compiler")
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("lean", [False, True])
def test_a_compiled_block_keeps_what_is_planned_for_its_kind(tmp_path: Path, *, lean: bool) -> None:
    settings = Compile.model_validate({"mode": "Default", "fullGraph": True})

    def prepare(transformer: Any) -> None:
        forward_pass.install(transformer, attend=attend_with(Attention.SDPA))
        compile_blocks(FLUX1.blocks_of(transformer), settings, device=torch.device("cpu"), scratch=tmp_path, lean=lean)

    def kept(**blocks: int) -> float:
        return widths_kept(**blocks, prepare=prepare, dtypes=(_BFLOAT16, torch.float32))

    one_each = kept(double=1, single=1)
    for kind, more in ((DOUBLE, {"double": 2, "single": 1}), (SINGLE, {"double": 1, "single": 2})):
        planned = widths(kind.kept, compiled=True, lean=lean)
        # Code that is built for the CPU recomputes one width more of a lean single block than is counted without building.
        less = 1.2 if lean and kind is SINGLE else 0.2
        assert planned - less < kept(**more) - one_each <= planned


def make_vae() -> Any:
    """FLUX.1's."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=16, use_quant_conv=False,
        use_post_quant_conv=False,
    ).to(_BFLOAT16)  # fmt: skip


def taken_by_a_pass(transformer: FluxTransformer2DModel, *, text: int, side: int) -> int:
    """The most bytes of the GPU that the second pass takes: the first compiles where it is to, and makes the gradients."""
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        forward(transformer, text=text, side=side, device="cuda").float().square().mean().backward()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("recomputed", [0, 6])
def test_a_gpu_needs_no_more_than_is_planned_for_and_not_much_less(recomputed: int) -> None:
    text, side = 512, 64
    transformer = make_transformer(double=2, single=4, heads=24).cuda().train()
    if recomputed:
        transformer.enable_gradient_checkpointing()
    taken = taken_by_a_pass(transformer, text=text, side=side)
    tokens, width = text + side**2, transformer.inner_dim
    one, kinds = width_bytes(tokens=tokens, samples=1, width=width), shaped(double_blocks=2, single_blocks=4).kinds
    planned = kept_bytes(kinds, recomputed=recomputed, token_bytes=one, compiled=False)
    planned += working_bytes(kinds, token_bytes=one, compiled=False)
    assert 0.5 * planned < taken <= planned


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("lean", [False, True])
def test_a_gpus_compiled_blocks_need_no_more_than_is_planned_for_and_not_much_less(
    tmp_path: Path, *, lean: bool
) -> None:
    text, side, gpu = 512, 64, torch.device("cuda")
    transformer = make_transformer(double=2, single=4, heads=24).cuda().train()
    forward_pass.install(transformer, attend=attend_with(choose(Attention.AUTO, device=gpu, masked=False)))
    settings = Compile.model_validate({"mode": "Default", "fullGraph": True})
    compile_blocks(FLUX1.blocks_of(transformer), settings, device=gpu, scratch=tmp_path, lean=lean)
    taken = taken_by_a_pass(transformer, text=text, side=side)
    one, kinds = (
        width_bytes(tokens=text + side**2, samples=1, width=3072),
        shaped(double_blocks=2, single_blocks=4).kinds,
    )
    planned = kept_bytes(kinds, recomputed=0, token_bytes=one, compiled=True, lean=lean)
    planned += working_bytes(kinds, token_bytes=one, compiled=True)
    assert 0.5 * planned < taken <= planned


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("lean", [False, True])
def test_a_gpus_compiled_block_keeps_what_is_planned_for_its_kind(
    tmp_path: Path, record_property: Callable[[str, object], None], *, lean: bool
) -> None:
    text, side, gpu = 512, 64, torch.device("cuda")
    settings = Compile.model_validate({"mode": "Default", "fullGraph": True})
    one = width_bytes(tokens=text + side**2, samples=1, width=3072)

    def kept(**blocks: int) -> float:
        transformer = make_transformer(**blocks, heads=24).cuda().train()
        forward_pass.install(transformer, attend=attend_with(choose(Attention.AUTO, device=gpu, masked=False)))
        compile_blocks(FLUX1.blocks_of(transformer), settings, device=gpu, scratch=tmp_path, lean=lean)
        forward(transformer, text=text, side=side, device="cuda").float().square().mean().backward()  # compiles
        before = torch.cuda.memory_allocated()
        result = forward(transformer, text=text, side=side, device="cuda")
        assert result.requires_grad
        return (torch.cuda.memory_allocated() - before) / one

    planned = [widths(kind.kept, compiled=True, lean=lean) for kind in (DOUBLE, SINGLE)]
    one_each = kept(double=1, single=1)
    double, single = kept(double=2, single=1) - one_each, kept(double=1, single=2) - one_each
    record_property("widths", f"{double:.2f} of {planned[0]} planned, {single:.2f} of {planned[1]}")
    assert planned[0] - 0.5 < double <= planned[0]
    assert planned[1] - 0.5 < single <= planned[1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpus_vae_needs_about_what_is_planned_for() -> None:
    before = torch.cuda.memory_allocated()
    vae, pictures = make_vae().cuda().eval(), torch.zeros(4, 3, 1024, 1024, dtype=_BFLOAT16, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        vae.encode(pictures)
    planned = vae_bytes(FLUX1.vae, pictures=4, pixels=1024 * 1024)
    assert 0.8 * planned < torch.cuda.max_memory_allocated() - before <= 1.5 * planned
