"""The job that people see first has the settings and the seconds that the planner gives it on 4 x 8 H100."""

from __future__ import annotations

import re

import pytest
import yaml

from oarlock_api.trainingjob import TrainingJob
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.planner import Plan, plan_for

from .fences import ROOT, fences

H100_BYTES = 85_520_809_984
PAGES = ["README.md", "docs/first-job.md", "examples/claim.yaml"]


def jobs_of(page: str) -> list[TrainingJob]:
    """The whole TrainingJobs of a page or an example."""
    path = ROOT / page
    texts = [path.read_text()] if path.suffix == ".yaml" else [each.text for each in fences() if each.page == page]
    whole = [text for text in texts if "kind: TrainingJob\n" in text]
    found = [item for text in whole for item in yaml.safe_load_all(text) if item["kind"] == "TrainingJob"]
    return [TrainingJob.model_validate(item) for item in found]


def planned(job: TrainingJob) -> Plan:
    assert job.spec.training is not None
    ranks = job.spec.nodes * job.spec.gpus_per_node
    return plan_for(
        job.spec.training, FLUX1.published, world_size=ranks, local_world_size=job.spec.gpus_per_node,
        gpu_memory_bytes=H100_BYTES, gpu_name="NVIDIA H100 80GB HBM3",
    )  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_planner_has_nothing_better_for_the_first_job_of(page: str) -> None:
    (job,) = jobs_of(page)
    plan = planned(job)
    assert plan.work.batch.effective == 256
    assert plan.proposal is None


@pytest.mark.parametrize("page", ["README.md", "docs/first-job.md"])
def test_the_seconds_of_its_step_are_the_planner_s_on(page: str) -> None:
    (job,) = jobs_of(page)
    speed = planned(job).speed
    assert speed is not None
    assert f"{speed.seconds:.2f} to {speed.slow_seconds:.2f}" in (ROOT / page).read_text()


def test_the_sample_of_kubectl_shows_the_slow_end() -> None:
    (job,) = jobs_of("README.md")
    speed = planned(job).speed
    assert speed is not None
    (shown,) = re.findall(r"4180/10000 +([0-9.]+)", (ROOT / "README.md").read_text())
    assert shown == f"{speed.slow_seconds:.2f}"
