"""A scan lies beside the caches: a job with an output of its own finds it there, and reads no header again."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist
import yaml
from PIL import Image

from oarlock_api.contract.job_file import JobFile
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.metadata import discovery
from oarlock_trainer.data.metadata.reuse import FOLDER
from oarlock_trainer.data.metadata.scan import hand_on_scans, scan, table_folder
from oarlock_trainer.data.metadata.table import PARTS, Table
from oarlock_trainer.engine import process_group
from oarlock_trainer.preprocess.stores import latents_at
from oarlock_trainer.runtime.job import Job, RankInfo, parse_training
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from preprocess_runs import Preprocess

ENCODERS = Encoders(vae="v", text="t")
EXAMPLE = Path(__file__).parents[4] / "examples" / "argo-workflow.yaml"


class Jobs:
    """Scans of jobs, one after the other, each handed on; and the names of all pictures whose header was read."""

    def __init__(self, home: Path, looked_at: list[str]) -> None:
        self.home = home
        self.looked_at = looked_at

    def scan(self, name: str, training: dict[str, Any], *, left_out: tuple[int, ...] = ()) -> list[str]:
        """The pictures of a job's table; `left_out` are rows that proved unusable after the scan."""
        file = JobFile(
            job=name, namespace="default", job_uid=name, attempt=1, nodes=1, gpus_per_node=0,
            output_directory=str(self.home / name), training=training,
        )  # fmt: skip
        rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
        job = Job(file=file, training=parse_training(file), rank_info=rank_info, simulate_gpus=False)

        def caches(dataset: Any) -> Any:
            return latents_at(job, Locations(), dataset)

        ranks = process_group.join(job, store=dist.FileStore(str(self.home / f"meeting-{time.monotonic_ns()}"), 1))
        try:
            found = scan(job, Locations(), ranks, ENCODERS, fingerprint="f", go_on=lambda: None, caches=caches).manifest
        finally:
            dist.destroy_process_group()
        manifest = replace(found, left_out=left_out) if left_out else found
        hand_on_scans(job, Locations(), ENCODERS, manifest, caches)
        table = Table(table_folder(job.output), manifest)
        return [table.picture(row).name for row in range(len(table)) if table.kept[row]]

    def training(self, **dataset: Any) -> dict[str, Any]:
        """Training on the pictures, with one place for latents."""
        own = {"name": "photos", "source": {"path": str(self.home / "data/photos")}} | dataset
        data = {"datasets": [own], "imageEmbeds": {"path": str(self.home / "latents")}}
        return {"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "resolution": 64, "data": data}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    looked_at: list[str] = []
    read = discovery.header

    def header(files: Any, name: str) -> Any:
        looked_at.append(name)
        return read(files, name)

    monkeypatch.setattr(discovery, "header", header)
    for number in range(5):
        add(tmp_path, f"{number}.png")
    return Jobs(tmp_path, looked_at)


def add(home: Path, name: str) -> None:
    path = home / "data/photos" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64), "teal").save(path)
    path.with_suffix(".txt").write_text("a cat")


def test_a_job_with_another_output_takes_over_the_scan_that_lies_with_the_caches(jobs: Jobs) -> None:
    first = jobs.scan("first", jobs.training())
    add(jobs.home, "new.png")
    assert jobs.scan("second", jobs.training(preserveScan=True, name="renamed")) == first
    assert len(jobs.looked_at) == 5


def test_rows_that_proved_unusable_are_handed_on_as_left_out(jobs: Jobs) -> None:
    jobs.scan("first", jobs.training(), left_out=(2,))
    assert jobs.scan("second", jobs.training(preserveScan=True)) == ["0.png", "1.png", "3.png", "4.png"]


@pytest.mark.parametrize("change", [{"captions": {"strategy": "Filename"}}, {"preserveScan": False}])
def test_other_settings_and_no_trust_scan_anew(jobs: Jobs, change: dict[str, Any]) -> None:
    jobs.scan("first", jobs.training())
    add(jobs.home, "new.png")
    assert "new.png" in jobs.scan("second", jobs.training(**{"preserveScan": True} | change))
    assert len(jobs.looked_at) == 11


@pytest.mark.parametrize(
    "harm",
    [
        lambda scans: next(scans.glob("*.arrow")).unlink(),
        lambda scans: next(scans.glob("*.arrow")).write_bytes(b"torn"),
        lambda scans: next(scans.glob("*.json")).write_text("torn"),
        lambda scans: next(scans.glob("*.json")).write_text('{"version": 2}'),
        lambda scans: next(scans.glob("*.json")).write_text(
            json.dumps({"version": 1, "parts": [["../../elsewhere.arrow", 5]], "leftOut": []})
        ),
    ],
    ids=["a part is gone", "a part is torn", "not read", "a later version", "a part that lies elsewhere"],
)
def test_a_scan_that_is_not_whole_is_made_anew(jobs: Jobs, harm: Any) -> None:
    first = jobs.scan("first", jobs.training())
    harm(jobs.home / "latents" / FOLDER)
    assert jobs.scan("second", jobs.training(preserveScan=True)) == first
    assert len(jobs.looked_at) == 10


def test_parts_of_an_older_scan_go_with_it(jobs: Jobs) -> None:
    jobs.scan("first", jobs.training())
    add(jobs.home, "new.png")
    jobs.scan("second", jobs.training())
    there = {path.name for path in (jobs.home / "latents" / FOLDER).glob("*.arrow")}
    assert there == {path.name for path in (table_folder(jobs.home / "second") / PARTS).iterdir()}


def test_the_jobs_of_the_argo_example_read_no_header_twice(jobs: Jobs) -> None:
    text = EXAMPLE.read_text().replace("/output", str(jobs.home))
    values = {"claim": "c", "base": "/m", "data": str(jobs.home / "data"), "nodes": "4", "steps": "10"}
    text = re.sub(r"\{\{workflow\.parameters\.(\w+)\}\}", lambda match: values[match[1]], text)
    templates = {one["name"]: one for one in yaml.safe_load(text)["spec"]["templates"]}
    scanned = {
        step: jobs.scan(step, yaml.safe_load(templates[step]["resource"]["manifest"])["spec"]["training"])
        for step in ("preprocess", "train")
    }
    assert scanned["train"] == scanned["preprocess"]
    assert sorted(jobs.looked_at) == [f"{number}.png" for number in range(5)]


def test_who_trains_after_preprocessing_looks_at_no_picture(preprocess: Preprocess, tmp_path: Path) -> None:
    """The pictures are emptied in between: a header that was read again would be none."""
    for source in sorted(preprocess.pictures.iterdir())[:8]:
        target = tmp_path / "photos" / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
    data = {"imageEmbeds": {"path": str(tmp_path / "latents")}, "textEmbeds": {"path": str(tmp_path / "texts")}}
    place = {"source": {"path": str(tmp_path / "photos")}}
    (first,) = preprocess(tmp_path / "first", preprocess.training(data, **place))
    assert first["code"] == 0, first
    for picture in (tmp_path / "photos").iterdir():
        picture.write_bytes(b"")
    trusting = preprocess.training(data | {"onMissingEmbeds": "Fail"}, **place, preserveScan=True)
    (second,) = preprocess(tmp_path / "second", trusting)
    assert second["code"] == 0, second
    assert second["facts"] == first["facts"]
