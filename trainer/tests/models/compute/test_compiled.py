"""Compiled blocks, in processes that start as ranks do: with torch's compiler switched off and left out of the imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.objective import Loss
from oarlock_api.training import Training
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime import cgroup
from oarlock_trainer.runtime.errors import ConfigurationError

preload.settle_environment()
import kept_builds  # noqa: E402
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import pair  # noqa: E402

from oarlock_trainer.models.compute import kept_code  # noqa: E402
from oarlock_trainer.models.compute.compiled import compile_blocks  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, flow_matching_loss  # noqa: E402
from oarlock_trainer.models.tuning import tune  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, warm_up  # noqa: E402
from oarlock_trainer.plan import compiling  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROGRAM = Path(__file__).parents[2] / "support" / "flux_compiled.py"
FLOAT32 = 1e-5
CPU = torch.device("cpu")

pytestmark = pytest.mark.timeout(900)
builds_code = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs g++ or clang++ on the CPU"
)


def training(**fields: Any) -> Training:
    return Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/model"},
            "steps": 1,
            "data": {"datasets": [{"name": "one", "source": {"path": "/data"}}]},
        }
        | fields
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


def started(scratch: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHINDUCTOR")}
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(scratch)], env=environment | kept_builds.ENVIRONMENT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def first(scratch: Path) -> dict[str, Any]:
    """The first process with an empty folder: compiles, and builds for a minute what no run of the tests had built."""
    return started(scratch)


@pytest.mark.deep
@builds_code
def test_compiled_blocks_compute_what_diffusers_computes_forward_and_backward(first: dict[str, Any]) -> None:
    assert first["prediction"] < FLOAT32
    assert first["worst_gradient"] < FLOAT32


@pytest.mark.deep
@builds_code
def test_all_blocks_of_a_kind_share_one_graph_a_shape_recomputed_or_not(first: dict[str, Any]) -> None:
    assert first["graphs"] == 2


@pytest.mark.deep
@builds_code
def test_nothing_is_compiled_after_the_warm_up_nor_for_what_needs_no_gradients(first: dict[str, Any]) -> None:
    assert first["graphs_later"] == 0


@pytest.mark.deep
@builds_code
def test_the_warm_up_leaves_no_trace_and_tells_how_far_it_is(first: dict[str, Any]) -> None:
    assert (first["same_weights"], first["gradients"], first["same_randomness"]) == (True, 0, True)
    assert first["told"] == [[1, 1]]
    assert first["attention"] == "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.deep
@builds_code
def test_a_later_pod_takes_compiled_code_from_the_output(first: dict[str, Any], scratch: Path) -> None:
    """What the compiler of C++ made stays in the folder: a minute less, and nothing of what torch compiled."""
    assert first["from_cache"] == 0
    (folder,) = (scratch / "oarlock-compiled").iterdir()
    (kept,) = (scratch / "output/.oarlock/compiled").iterdir()
    assert kept.name == f"{folder.name}-cpu"
    before = kept.stat().st_mtime_ns
    for results in ("aotautograd", "fxgraph"):
        shutil.rmtree(folder / results)
    again = started(scratch)
    assert again["from_cache"] >= again["graphs"]
    assert again["prediction"] == first["prediction"]
    assert kept.stat().st_mtime_ns == before  # there was nothing to add


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """How many graphs torch's compiler traced so far: no code is made of them."""
    import torch._functorch.config as functorch  # noqa: PLC0415 - seconds that other tests need not pay
    import torch._inductor.config as inductor  # noqa: PLC0415
    from torch._dynamo import config, reset, utils  # noqa: PLC0415

    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    reset()
    utils.counters.clear()
    with (
        config.patch(disable=True, recompile_limit=8),
        inductor.patch(compile_threads=1),
        functorch.patch(activation_memory_budget=1.0),
    ):
        yield lambda: int(utils.counters["stats"]["unique_graphs"])
    reset()


@pytest.mark.deep
def test_each_number_of_tokens_has_a_graph_of_its_own_for_each_kind_of_block(
    traced: Callable[[], int], tmp_path: Path
) -> None:
    """Upright or lying, a picture has as many tokens."""
    _, mine = pair(double=2, single=2)
    job = training(compile={"mode": "Default", "fullGraph": True}, batchSize=2)
    kernel = tune(mine, job, device=CPU, recomputed=0, scratch=tmp_path)
    for shapes, graphs in (([Shape(8, 12, 9)], 2), ([Shape(8, 12, 9), Shape(12, 8, 9), Shape(8, 8, 9)], 4)):
        warm_up(mine, shapes, job, kernel=kernel)
        assert traced() == graphs == compiling.graphs(job.compile, shapes=graphs // 2, masked=False)


@pytest.mark.deep
def test_many_numbers_of_tokens_share_graphs_whose_sizes_are_open(traced: Callable[[], int], tmp_path: Path) -> None:
    """Each further bucket would be half a minute in which all GPUs wait."""
    _, mine = pair(double=2, single=2)
    shapes = [Shape(8, 2 * columns, 9) for columns in range(2, 9)]
    settings = training(compile={"mode": "Default", "fullGraph": True}).compile
    settled = compiling.settled(settings, shapes=len(shapes), masked=False)
    job = training(compile=settled.to_manifest())
    kernel = tune(mine, job, device=CPU, recomputed=0, scratch=tmp_path)
    warm_up(mine, shapes, job, kernel=kernel)
    assert traced() == compiling.graphs(settled, shapes=len(shapes), masked=False) == 5


@pytest.mark.deep
@pytest.mark.parametrize("sizes", [[(8, 12)], [(16, 16), (8, 12), (8, 8)]], ids=["one size", "several sizes"])
def test_texts_of_any_length_are_compiled_by_the_warm_up_and_nothing_after_it(
    traced: Callable[[], int], tmp_path: Path, sizes: list[tuple[int, int]]
) -> None:
    _, mine = pair(double=2, single=2)
    masked = {"attentionMask": True}
    settings = training(compile={"mode": "Default", "fullGraph": True}).compile
    settled = compiling.settled(settings, shapes=len(sizes), masked=True)
    job = training(compile=settled.to_manifest(), objective=masked, batchSize=2)
    kernel = tune(mine, job, device=CPU, recomputed=0, scratch=tmp_path)
    warm_up(mine, [Shape(*size, 20) for size in sizes], job, kernel=kernel)
    assert traced() == compiling.graphs(settled, shapes=len(sizes), masked=True) == 5
    for height, width in sizes:
        for text in (20, 19, 10, 2, 16):
            micro_batch = MicroBatch(
                latents=torch.randn(2, 4, height, width), noise=torch.randn(2, 4, height, width),
                text=torch.randn(2, text, 32), pooled=torch.randn(2, 24), sigmas=torch.rand(2), guidance=torch.ones(2),
                text_mask=torch.ones(2, text, dtype=torch.bool),
            )  # fmt: skip
            flow_matching_loss(mine, micro_batch, velocity=velocity, has_guidance=True, measure=Loss.MSE).backward()
    assert traced() == 5


@pytest.mark.parametrize(
    ("asked", "shapes", "masked", "dynamic"),
    [
        (None, 4, False, False),
        (None, 5, False, True),
        (None, 1, True, True),
        (False, 40, False, False),
        (True, 1, False, True),
    ],
)
def test_sizes_are_open_where_there_are_many_and_as_the_job_says(
    *, asked: bool | None, shapes: int, masked: bool, dynamic: bool
) -> None:
    settings = training(compile={"mode": "Default"} | ({} if asked is None else {"dynamic": asked})).compile
    assert compiling.settled(settings, shapes=shapes, masked=masked).dynamic is dynamic


def test_a_nodes_ranks_compile_with_no_more_processes_than_it_has_cores(
    traced: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor import config  # noqa: PLC0415

    del traced
    # The rank itself is bound to the cores near its GPU.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(96 if pid == os.getppid() else 48))
    monkeypatch.setattr(cgroup, "cpu_limit", lambda: 64.0)
    settings = training(compile={"mode": "Default"}).compile
    _, mine = pair(double=1, single=1)
    for ranks, wanted in ((8, 8), (1, 32), (128, 1)):
        compile_blocks(FLUX1.blocks_of(mine), settings, device=CPU, scratch=tmp_path, ranks_per_node=ranks)
        assert config.compile_threads == wanted
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "3")
    compile_blocks(FLUX1.blocks_of(mine), settings, device=CPU, scratch=tmp_path, ranks_per_node=8)
    assert config.compile_threads == 1  # what torch read of the environment at its import stays


def test_an_image_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    settings = training(compile={"mode": "Default"}).compile
    with pytest.raises(ConfigurationError, match=r"none of g\+\+, clang\+\+.*compile\.mode to None"):
        compile_blocks([], settings, device=CPU, scratch=tmp_path)


def test_texts_of_any_length_are_not_compiled_one_by_one(tmp_path: Path) -> None:
    job = training(compile={"mode": "Default", "dynamic": False}, objective={"attentionMask": True})
    with pytest.raises(ConfigurationError, match=r"remove training\.compile\.dynamic"):
        tune(torch.nn.Module(), job, device=CPU, recomputed=0, scratch=tmp_path)


@pytest.mark.deep
def test_kept_code_that_torch_does_not_take_costs_time_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch._dynamo import config, pgo  # noqa: PLC0415 - seconds that other tests need not pay
    from torch.compiler._cache import CacheArtifactManager  # noqa: PLC0415

    with CacheArtifactManager.with_fresh_cache():
        CacheArtifactManager.record_artifact(pgo.PGOCacheArtifact.type(), "one", b"state")
        kept = torch.compiler.save_cache_artifacts()
    assert kept
    file = tmp_path / ".oarlock/compiled" / f"{kept_code.kind()}-cpu"
    file.parent.mkdir(parents=True)
    file.write_bytes(kept[0])
    monkeypatch.setattr(config, "automatic_dynamic_local_pgo", False)
    kept_code.bring(tmp_path, CPU)
    assert "is compiled once more" in capsys.readouterr().err
