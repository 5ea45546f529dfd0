"""What `oarlock-trainer plan` says of GPUs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from oarlock_api.spec import TrainingJobSpec
from oarlock_trainer.plan.table import forecast
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.progress_line import END


def told(
    *,
    gpu: str | None = None,
    fabric: str | None = None,
    nodes: int = 4,
    gpus: int = 8,
    recovery: Any = MappingProxyType({}),
    pod: Any = MappingProxyType({}),
    elastic: Any = None,
    **training: Any,
) -> str:
    spec = TrainingJobSpec.model_validate(
        {
            "nodes": nodes,
            **({"elastic": elastic} if elastic else {}),
            "gpusPerNode": gpus,
            "recovery": dict(recovery),
            "pod": dict(pod),
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "training": {
                "model": {"family": "Flux1", "path": "/not/here"},
                "steps": 10,
                "batchSize": 8,
                "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
                **training,
            },
        }
    )
    assert spec.training is not None
    return forecast(spec, spec.training, {2048, 4096}, text_tokens=512, gpu=gpu, fabric=fabric)


def test_memory_choices_time_and_a_proposal_are_told_and_called_a_model() -> None:
    said = told(compile={"mode": "Default"})
    assert "GPUs          4 x 8 H100, 8x400G (assumed; --gpu and --fabric name others)" in said
    assert "memory        of one GPU in GB (1e9 bytes): a model, not measured" in said
    assert "  total          76.0   of 77.0 that can be used" in said
    assert (
        "chosen        ZeRO stage 1, 45 of 57 blocks recomputed, of others what is pointwise, exchanges of 500 M elements"
        in said
    )
    assert "step          4.85 to 6.31 s" in said
    assert "MFU 37 to 29 %: a model, not measured" in said
    assert "proposal      batchSize 1 with gradientAccumulation 8, the same effective batch 256" in said


def test_graphs_are_counted_as_the_warm_up_makes_them() -> None:
    for masked, words in (
        (False, "4 graphs for 2 numbers of tokens,"),
        (True, "5 graphs for 2 numbers of image tokens and"),
    ):
        assert words in told(compile={"mode": "Default"}, objective={"attentionMask": masked})


def test_a_models_own_configuration_is_planned_for_without_its_weights(tmp_path: Path, tiny_flux: Path) -> None:
    (tmp_path / "transformer").mkdir()
    shutil.copyfile(tiny_flux / "transformer/config.json", tmp_path / "transformer/config.json")
    said = told(model={"family": "Flux1", "path": str(tmp_path)})
    assert "11.9 B" in told()
    assert "11.9 B" not in said
    assert said == told(model={"family": "Flux1", "path": str(tiny_flux)})


def test_the_components_add_up_to_the_total() -> None:
    rows = [line.split() for line in told(nodes=1).splitlines() if line.startswith("  ") and line[2] != " "]
    *components, total = [float(row[1]) for row in rows if row[0] != "node"]
    assert sum(components) == pytest.approx(total, abs=0.05 * len(components))


def test_what_the_state_takes_in_memory_stands_beside_what_the_pod_may_have() -> None:
    kept = {"inPlace": "Auto", "memory": {"everySteps": "Auto"}}
    assert "in memory" not in told(recovery={**kept, "inPlace": "Never"})
    assert "in memory" not in told(recovery={"inPlace": "Auto"})
    (enough,) = in_memory(told(recovery=kept, pod={"sharedMemory": "143G"}))
    assert enough.startswith(
        "in memory     142.8 GB of each node for recovery.memory: its ranks' state, twice, and that of"
    )
    said = told(recovery=kept, pod={"sharedMemory": "142G", "resources": {"limits": {"memory": "178G"}}})
    assert "more than pod.sharedMemory, 142.0 GB: raise it, or nothing is kept there" in said
    assert "with the rest 178.5 GB, more than the pod's limit of 178.0: raise pod.resources.limits.memory" in said


def test_what_the_state_of_one_node_takes_has_no_other_nodes_beside_it() -> None:
    kept = {"inPlace": "Auto", "memory": {"everySteps": "Auto"}}
    (enough,) = in_memory(told(nodes=1, recovery=kept, pod={"sharedMemory": "300G"}))
    assert enough.endswith(" GB of each node for recovery.memory: its ranks' state, twice")


@pytest.mark.parametrize(
    ("pod", "lacks"),
    [
        ({"sharedMemory": "429G"}, ""),
        (
            {"sharedMemory": "428G"},
            "have 428.0 GB: raise them, or fewer nodes may keep nothing there",
        ),
        (
            {"sharedMemory": "429G", "resources": {"limits": {"memory": "179G"}}},
            "have 143.3 GB: raise them, or fewer nodes may keep nothing there",
        ),
    ],
)  # fmt: skip
def test_an_elastic_gang_is_told_what_fewer_nodes_take(pod: dict[str, Any], lacks: str) -> None:
    kept = {"inPlace": "Auto", "memory": {"everySteps": "Auto"}}
    elastic = {"minNodes": 2, "patienceSeconds": 10}
    lines = in_memory(told(recovery=kept, pod=pod, elastic=elastic, effectiveBatch=32, batchSize=1))
    assert lines[1].strip() == (
        "with 2 nodes (spec.elastic) 142.8 GB of each to go on from memory, and 428.5 GB to keep the state there again"
    )
    said = "sharedMemory, and the memory limit less the rest, "
    assert [line.strip() for line in lines[2:]] == ([said + lacks] if lacks else [])


def in_memory(said: str) -> list[str]:
    """The lines of the plan that tell of it: the last ones."""
    lines = said.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("in memory")) :]


def test_a_gpu_and_a_fabric_that_were_named_are_not_called_assumed() -> None:
    said = told(gpu="H200", fabric="1x100G")
    assert "GPUs          4 x 8 H200, 1x100G\n" in said
    assert "of 135.0 that can be used" in said
    assert "(assumed; --fabric name" in told(gpu="H200")
    assert "GPUs          4 x 8 H200, 1x100G\n" in told(gpu="h200", fabric="1x100G")


def test_what_does_not_fit_is_an_error_that_says_whether_the_gpus_are_assumed() -> None:
    with pytest.raises(ConfigurationError, match=r"98\.8 GB are needed(.|\n)*H100 is assumed: --gpu names another"):
        told(nodes=1, gpus=4)
    with pytest.raises(ConfigurationError, match=r"98\.8 GB are needed") as refused:
        told(nodes=1, gpus=4, gpu="H100")
    assert "assumed" not in str(refused.value)


def test_the_nodes_memory_is_told() -> None:
    """What checkpoints are written from: 12 bytes a parameter on 8 GPUs; and what is kept out of the GPUs."""
    assert "  node           17.9   in the node's own memory" in told(nodes=1)
    assert "  node           41.7   in the node's own memory" in told(nodes=1, engine={"offloadOptimizer": "CPU"})


def test_adapters_have_no_stage_and_no_exchanges_to_choose() -> None:
    assert "chosen        DDP, " in told(nodes=1, gpus=1, method="LoRA")


def test_of_gpus_that_a_job_does_not_have_or_does_not_train_on_nothing_is_computed() -> None:
    assert "neither memory nor time is computed" in told(gpus=0)
    assert told(task="Preprocess", steps=None) == ""


@pytest.mark.deep
def test_the_command_says_it_after_the_data(tmp_path: Path, pictures: Path, tiny_flux: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        """
        apiVersion: oarlock.dev/v1alpha1
        kind: TrainingJob
        metadata: {name: flux}
        spec:
          nodes: 1
          gpusPerNode: 2
          output: {persistentVolumeClaim: {claimName: out}}
          training:
            model: {family: Flux1, path: /models/flux}
            steps: 100
            resolution: 64
            data: {datasets: [{name: photos, source: {path: /photos}}]}
        """
    )
    command = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(job), "--gpu", "H200"]
    paths = [f"--path=/photos={pictures}", f"--path=/models/flux={tiny_flux}"]
    ended = subprocess.run([*command, *paths], check=False, capture_output=True, text=True)
    complaints = [line for line in ended.stderr.splitlines() if not line.endswith(END)]
    assert (ended.returncode, complaints) == (0, [])
    assert ended.stdout.index("embeddings") < ended.stdout.index("GPUs          1 x 2 H200, NVLink (assumed; --fabric")
    assert "no block recomputed" in ended.stdout


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--gpu", "H1000"), "--gpu H1000 is no type that is known here"),
        (("--fabric", "400"), "--fabric 400: say NVLink"),
    ],
)
def test_names_of_gpus_and_fabrics_are_checked_before_anything_is_read(
    tmp_path: Path, option: tuple[str, str], words: str
) -> None:
    command = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(tmp_path / "nothing.yaml"), *option]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 85
    assert words in refused.stderr
    assert "nothing.yaml" not in refused.stderr
