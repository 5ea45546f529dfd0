"""Compiled blocks, in processes that start as ranks do: with torch's compiler switched off and left out of the imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.training import Training
from oarlock_trainer import warm
from oarlock_trainer.errors import ConfigurationError

warm.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from flux_pair import pair  # noqa: E402

from oarlock_trainer.models.flux import kept_code  # noqa: E402
from oarlock_trainer.models.flux.compiled import compile_blocks  # noqa: E402
from oarlock_trainer.models.flux.tuning import tune  # noqa: E402
from oarlock_trainer.models.flux.warm_up import Shape, warm_up  # noqa: E402

_PROGRAM = Path(__file__).parent / "support" / "flux_compiled.py"
FLOAT32 = 1e-5
CPU = torch.device("cpu")

pytestmark = pytest.mark.timeout(900)  # compiling takes a minute, and several where others use the processor, too
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
    environment["TORCHINDUCTOR_VEC_ISA_OK"] = "0"  # else ten programs are built to see what the processor can
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(scratch)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def first(scratch: Path) -> dict[str, Any]:
    """The first process with an empty folder: compiles for about a minute."""
    return started(scratch)


@builds_code
def test_compiled_blocks_compute_what_diffusers_computes_forward_and_backward(first: dict[str, Any]) -> None:
    assert first["prediction"] < FLOAT32
    assert first["worst_gradient"] < FLOAT32


@builds_code
def test_all_blocks_of_a_kind_share_one_graph_a_shape_recomputed_or_not(first: dict[str, Any]) -> None:
    assert first["graphs"] == 2


@builds_code
def test_nothing_is_compiled_after_the_warm_up_nor_for_what_needs_no_gradients(first: dict[str, Any]) -> None:
    assert first["graphs_later"] == 0


@builds_code
def test_the_warm_up_leaves_no_trace_and_tells_how_far_it_is(first: dict[str, Any]) -> None:
    assert (first["same_weights"], first["gradients"], first["same_randomness"]) == (True, 0, True)
    assert first["told"] == [[1, 1]]
    assert first["attention"] == "aten::_scaled_dot_product_flash_attention_for_cpu"


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


def test_each_number_of_tokens_has_a_graph_of_its_own_for_each_kind_of_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As torch's compiler traces them: no code is made of the graphs. Upright or lying, a picture has as many tokens."""
    from torch._dynamo import config, reset, utils  # noqa: PLC0415 - seconds that other tests need not pay

    for name in ("disable", "recompile_limit"):  # both are set by what is tested
        monkeypatch.setattr(config, name, getattr(config, name))
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    reset()
    utils.counters.clear()
    _, mine = pair(double=2, single=2)
    job = training(compile={"mode": "Default", "fullGraph": True}, batchSize=2)
    kernel = tune(mine, job, device=CPU, recomputed=0, scratch=tmp_path)
    for shapes, graphs in (([Shape(8, 12, 9)], 2), ([Shape(8, 12, 9), Shape(12, 8, 9), Shape(8, 8, 9)], 4)):
        warm_up(mine, shapes, job, kernel=kernel)
        assert utils.counters["stats"]["unique_graphs"] == graphs


def test_an_image_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    settings = training(compile={"mode": "Default"}).compile
    with pytest.raises(ConfigurationError, match=r"none of g\+\+, clang\+\+.*compile\.mode to None"):
        compile_blocks(torch.nn.Module(), settings, device=CPU, scratch=tmp_path)


def test_texts_of_any_length_are_not_compiled_one_by_one(tmp_path: Path) -> None:
    job = training(compile={"mode": "Default"}, objective={"attentionMask": True})
    with pytest.raises(ConfigurationError, match=r"compile\.dynamic to true"):
        tune(torch.nn.Module(), job, device=CPU, recomputed=0, scratch=tmp_path)


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
