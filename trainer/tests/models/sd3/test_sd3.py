"""What Stable Diffusion 3.5 alone promises: noise levels of either kind, and a table of positions that no step changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FlowMatchEulerDiscreteScheduler, StableDiffusion3Pipeline  # noqa: E402 - before ours
from diffusers.pipelines.stable_diffusion_3 import pipeline_stable_diffusion_3 as theirs  # noqa: E402
from saving import Plain, save_alone  # noqa: E402

from oarlock_trainer.checkpoint.export import Export  # noqa: E402
from oarlock_trainer.checkpoint.format import valid_checkpoints  # noqa: E402
from oarlock_trainer.engine.engine import MASTER, TensorSlice  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.sd3.code import CODE  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pipeline(tiny_sd3: Path) -> Any:
    found = StableDiffusion3Pipeline.from_pretrained(tiny_sd3, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.mark.parametrize("dynamic", [False, True])
def test_noise_levels_of_pictures_are_the_pipelines(pipeline: Any, *, dynamic: bool) -> None:
    schedulers = [
        FlowMatchEulerDiscreteScheduler.from_config(pipeline.scheduler.config, use_dynamic_shifting=dynamic)
        for _ in range(2)
    ]
    CODE.set_noise_levels(schedulers[0], 7, 1024)
    told = {"mu": theirs.calculate_shift(1024, max_shift=1.15)} if dynamic else {}
    theirs.retrieve_timesteps(schedulers[1], 7, CPU, **told)
    assert torch.equal(schedulers[0].sigmas, schedulers[1].sigmas)


class Trained(Plain):
    """Keeps a module's weights as the masters of one rank."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.weights = module
        self._parts = [
            TensorSlice(name=name, slot=MASTER, start=0, values=weight.detach().float().flatten())
            for name, weight in module.named_parameters()
        ]


@pytest.mark.parametrize("largest", [4 * 10**9, 200_000])
def test_the_exported_model_is_what_the_pipeline_loads_with_its_table_of_positions(
    tiny_sd3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr("oarlock_trainer.checkpoint.weight_files._LARGEST_FILE", largest)
    module = transformer.load(tiny_sd3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.125)
    save_alone(tmp_path, 10, engine=Trained(module))
    exporting = Export(valid_checkpoints(tmp_path)[0], tiny_sd3, tmp_path / "model", adapters=None)
    exporting.begin()
    for rank in range(2):
        exporting.write_share(rank, 2)
    loaded = StableDiffusion3Pipeline.from_pretrained(exporting.complete(), dtype=torch.bfloat16).transformer
    found, wanted = loaded.state_dict(), module.state_dict()
    assert found.keys() == wanted.keys() >= {"pos_embed.pos_embed"}
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_model_whose_weights_come_from_a_checkpoint_has_the_files_table_of_positions(tiny_sd3: Path) -> None:
    whole, blank = transformer.load(tiny_sd3), transformer.load(tiny_sd3, blank=True)
    elsewhere = transformer.load(tiny_sd3, reads=False)
    for model in (blank, elsewhere):
        assert torch.equal(model.pos_embed.pos_embed, whole.pos_embed.pos_embed)
        assert "pos_embed.pos_embed" not in dict(model.named_parameters())
    assert not any(parameter.any() for parameter in blank.parameters())
    assert whole.pos_embed.pos_embed.any()
