"""docs/models.md's figures are the planner's own: each row is computed here once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock_api.training import Training
from oarlock_api.weights import FLAVORS, VIDEO_FAMILIES, ModelFamily, ModelFlavor
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family import Family
from oarlock_trainer.plan.communication import fabric
from oarlock_trainer.plan.gpus import gpu
from oarlock_trainer.plan.parameters import whole
from oarlock_trainer.plan.planner import Gpus, Plan, choose
from oarlock_trainer.plan.work import work_of
from oarlock_trainer.runtime.errors import ConfigurationError

PAGE = (Path(__file__).parents[3] / "docs/models.md").read_text(encoding="utf-8")
SIZES = {
    "FLUX.1": (ModelFamily.FLUX1, ModelFlavor.DEV),
    "FLUX.2 Dev": (ModelFamily.FLUX2, ModelFlavor.DEV),
    "FLUX.2 Klein 9B": (ModelFamily.FLUX2, ModelFlavor.KLEIN_BASE_9B),
    "FLUX.2 Klein 4B": (ModelFamily.FLUX2, ModelFlavor.KLEIN_BASE_4B),
    "Z-Image": (ModelFamily.Z_IMAGE, ModelFlavor.BASE),
    "Stable Diffusion 3.5 Large": (ModelFamily.STABLE_DIFFUSION_3, ModelFlavor.LARGE),
    "Stable Diffusion 3.5 Medium": (ModelFamily.STABLE_DIFFUSION_3, ModelFlavor.MEDIUM),
    "Qwen-Image": (ModelFamily.QWEN_IMAGE, ModelFlavor.V1),
    "Wan T2V-14B": (ModelFamily.WAN, ModelFlavor.T2V14B),
    "Wan T2V-1.3B": (ModelFamily.WAN, ModelFlavor.T2V1_3B),
}
SAMPLES = 8
"""Pictures of 1024 x 1024 pixels of each GPU; of models of videos it is one video:"""
VIDEO = (832, 480, 81)
"""Width, height and frames."""
NODE = 8


def samples(kind: ModelFamily) -> int:
    return 1 if kind in VIDEO_FAMILIES else SAMPLES


def training(name: str, method: str) -> Training:
    kind, flavor = SIZES[name]
    return Training.model_validate(
        {
            "model": {"family": kind, "flavor": flavor, "path": "/models/any"},
            "method": method,
            "steps": 10,
            "batchSize": samples(kind),
            "resolution": 1024,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        }
    )


def family(name: str) -> Family:
    return family_of(training(name, "Full").model)


def plan(name: str, method: str, gpus: int) -> Plan:
    kind, wanted = gpu("H100"), training(name, method)
    between = fabric("8x400G" if gpus > NODE else "NVLink", gpu=kind)
    shape, grid = family(name).published, family(name).grid
    tokens = grid.tokens(*VIDEO) if family(name).is_video else None
    work = work_of(wanted, shape, ranks=gpus, ranks_per_node=min(gpus, NODE), image_tokens=tokens)
    return choose(work, wanted, Gpus(memory=kind.memory, kind=kind, fabric=between))


def billions(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}"


def cell(name: str, method: str, gpus: int) -> str:
    """GB of each GPU, recomputed blocks, pictures a second or videos a minute; or what is needed where it does not fit."""
    try:
        one = plan(name, method, gpus)
    except ConfigurationError as error:
        needed = str(error).partition("these GPUs: ")[2].partition(" GB are needed")[0]
        return f"no: {needed} GB"
    assert one.speed
    each = samples(SIZES[name][0]) * gpus * (60 if family(name).is_video else 1)
    slow, fast = (each / seconds for seconds in (one.speed.slow_seconds, one.speed.seconds))
    digits = 1 if fast < 20 else 0
    return f"{one.memory.total / 1e9:.0f} GB, {one.recomputed}; {slow:.{digits}f} - {fast:.{digits}f}"


@pytest.mark.parametrize("name", SIZES)
def test_the_sizes_are_those_of_the_published_models(name: str) -> None:
    one = family(name)
    texts = one.texts.parameters + one.texts.beside_parameters
    cells = [name, billions(whole(one.published).trained), billions(texts), str(one.published.blocks)]
    assert f"| {' | '.join(cells)} | " in PAGE


@pytest.mark.parametrize("method", ["Full", "LoRA"])
@pytest.mark.parametrize("name", SIZES)
def test_what_fits_and_how_fast_it_is_are_the_planners(name: str, method: str) -> None:
    row = [name, method, *(cell(name, method, gpus) for gpus in (1, NODE, 4 * NODE))]
    assert f"| {' | '.join(row)} |" in PAGE


def test_every_flavor_stands_on_the_page() -> None:
    lacking = [flavor for flavors in FLAVORS.values() for flavor in flavors if f"`{flavor}`" not in PAGE]
    assert not lacking
