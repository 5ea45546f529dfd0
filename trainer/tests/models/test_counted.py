"""What a plan takes for granted of each family is what its classes have, compute and keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.weights import Model
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from alive import Alive  # noqa: E402
from counted_families import COUNTED, Config, Counted, Published  # noqa: E402
from family_pairs import PAIRS  # noqa: E402

from oarlock_trainer.models.compute.compiled import BUDGET  # noqa: E402
from oarlock_trainer.models.families import FAMILIES, family_of  # noqa: E402
from oarlock_trainer.models.family_codes import CODES  # noqa: E402
from oarlock_trainer.plan.activations import width_bytes, widths  # noqa: E402
from oarlock_trainer.plan.counting.arguments import call_arguments  # noqa: E402
from oarlock_trainer.plan.counting.calls import calls, make  # noqa: E402
from oarlock_trainer.plan.counting.flops import flops_of  # noqa: E402
from oarlock_trainer.plan.counting.gpu_kernels import gpu_kernels  # noqa: E402
from oarlock_trainer.plan.counting.kept import compiled, kept  # noqa: E402
from oarlock_trainer.plan.encoding import vae_bytes  # noqa: E402
from oarlock_trainer.plan.flops import attention_flops, matrix_flops  # noqa: E402
from oarlock_trainer.plan.parameters import whole  # noqa: E402

if TYPE_CHECKING:
    from oarlock_trainer.models.family import Family

BFLOAT16 = torch.bfloat16
of_every_family = pytest.mark.parametrize("counted", COUNTED, ids=lambda one: one.family.slug)


def of_each(name: str) -> pytest.MarkDecorator:
    """A test for each of what the records have by this name."""
    several = [(one, place, what) for one in COUNTED for place, what in enumerate(getattr(one, name))]
    return pytest.mark.parametrize(
        ("counted", "one"),
        [
            pytest.param(counted, one, id=f"{counted.family.slug}-{one if isinstance(one, str) else place}")
            for counted, place, one in several
        ],
    )


def variant(counted: Counted, flavor: Any) -> Family:
    return family_of(Model(family=counted.key, flavor=flavor, path="/model"))


def test_every_family_has_its_records() -> None:
    assert [one.key for one in COUNTED] == [one.key for one in PAIRS] == list(FAMILIES)


@of_each("configs")
def test_every_linear_and_every_parameter_is_counted(counted: Counted, one: str) -> None:
    with torch.device("meta"):
        model = counted.transformer(**counted.configs[one])
    shape = counted.family.architecture(counted.configs[one])
    assert whole(shape).trained == sum(weight.numel() for weight in model.parameters())
    assert whole(shape).largest == max(weight.numel() for weight in model.parameters())
    assert {linear.name: (linear.inputs, linear.outputs, linear.bias) for linear in shape.linears} == {
        name: (linear.in_features, linear.out_features, linear.bias is not None)
        for name, linear in model.named_modules()
        if isinstance(linear, torch.nn.Linear)
    }
    assert shape.blocks == len(counted.family.blocks_of(model))


@of_each("published")
def test_the_published_models_are_what_is_counted_without_a_configuration(counted: Counted, one: Published) -> None:
    family = variant(counted, one.flavor)
    assert family.published == counted.family.architecture(counted.configs[one.config])
    assert whole(family.published).trained == one.parameters
    assert family.published.text_width == family.encoded.width


@of_each("refused")
def test_a_variant_that_is_not_trained_is_refused(counted: Counted, one: tuple[Config, str]) -> None:
    other, named = one
    with pytest.raises(ValueError, match=named):
        counted.family.architecture(next(iter(counted.configs.values())) | other)


@of_each("encoders")
def test_a_text_encoder_has_the_parameters_of_its_class_up_to_the_layer_that_is_asked(
    counted: Counted, one: Any
) -> None:
    texts = variant(counted, one).texts
    with torch.device("meta"):
        network = counted.encoders[one]()
    layers = network.layers if hasattr(network, "layers") else network.encoder.block
    matrices = [weight.weight.numel() for weight in layers[0].modules() if isinstance(weight, torch.nn.Linear)]
    assert texts.parameters == sum(weight.numel() for weight in network.parameters())
    assert (texts.layer_parameters, texts.layers) == (sum(matrices), len(layers))
    assert texts.largest == network.get_input_embeddings().weight.numel()


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """As the job's, by the function that the counting replaces."""
    assert mask is None
    heads = (one.transpose(1, 2) for one in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)


@pytest.mark.deep
@of_each("small")
def test_a_block_computes_and_keeps_what_is_planned_for_its_kind(
    counted: Counted, one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What modulates whole samples is no more than some tokens, and left out of a plan."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")  # else what is compiled is left as it is
    shape, shapes = counted.family.architecture(counted.configs[one]), counted.shapes
    tokens = shapes.image + shapes.text
    share = shapes.text / tokens
    made = make(
        counted.transformer,
        counted.configs[one],
        prepare=lambda model: CODES[counted.key].install(model, attend=attend, recomputed=0),
    )
    device, config = torch.device("meta"), made.model.config
    with gpu_kernels():
        called = calls(made, call_arguments(counted.description, shapes, config, device=device, dtype=BFLOAT16))
    for (kind, block), planned in zip(made.kinds.items(), shape.kinds, strict=True):
        alone = replace(shape, kinds=(replace(planned, number=1),))
        with gpu_kernels():
            flops = flops_of(block, called[kind]).forward
        modulation = 2 * shapes.batch * planned.modulation
        for found, one_sample in ((flops.matrices - modulation, matrix_flops), (flops.attention, attention_flops)):
            wanted = shapes.batch * one_sample(alone, tokens=tokens, text_share=share)
            assert found == pytest.approx(wanted, rel=1e-12)
        assert kind.number == planned.number
        width = width_bytes(tokens=round(planned.share(share) * tokens), samples=shapes.batch, width=shape.width)
        with gpu_kernels():
            assert counted.takes(kept(block, called[kind]) / width, widths(planned.kept, compiled=False))
        for lean in (False, True) if counted.compiled is None or kind.name in counted.compiled else ():
            with gpu_kernels(norms=False), compiled(block, budget=BUDGET if lean else 1.0):
                found = kept(block, called[kind]) / width
            assert counted.takes(found, widths(planned.kept, compiled=True, lean=lean)), lean


@of_every_family
def test_the_vae_at_work_has_as_much_alive_as_is_planned_for(counted: Counted) -> None:
    with torch.device("meta"):
        vae = counted.vae().to(BFLOAT16)
        pictures = torch.empty(2, 3, *(1,) * counted.frames, 256, 256, dtype=BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(pictures)
    found = sum(weight.nbytes for weight in vae.parameters()) + alive.most
    planned = vae_bytes(counted.family.vae, pictures=2, pixels=256 * 256)
    assert (1 - counted.vae_less) * planned <= found <= planned
