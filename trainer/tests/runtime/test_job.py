"""What a rank reads from its environment and the job file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oarlock_api.contract.layout import Owner
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import read_job

PLACE = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


def environment(folder: Path, **fields: Any) -> dict[str, str]:
    training = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    body = {
        "version": 2, "job": "flux", "namespace": "default", "job_uid": "u", "attempt": 2, "nodes": 2,
        "gpus_per_node": 0, "output_directory": "/output/flux", "training": training,
    } | fields  # fmt: skip
    (folder / "job.json").write_text(json.dumps(body))
    return PLACE | {"OARLOCK_CONFIG": str(folder / "job.json")}


def test_a_rank_knows_its_job_and_its_place(tmp_path: Path) -> None:
    job = read_job(environment(tmp_path))
    assert (job.rank_info.rank, job.rank_info.local_rank, job.rank_info.world_size) == (3, 1, 4)
    assert str(job.output) == "/output/flux"
    assert job.training.objective.timestep_shift == 3.0
    assert job.cluster == ""
    assert read_job({**environment(tmp_path), "OARLOCK_CLUSTER": "lab"}).cluster == "lab"


def test_the_fence_is_to_name_the_round_that_a_rank_is_started_for(tmp_path: Path) -> None:
    assert read_job({**environment(tmp_path), "OARLOCK_ROUND": "3"}).owner == Owner("u", 2, 3)
    assert read_job(environment(tmp_path)).owner == Owner("u", 2)


def test_a_round_of_a_later_leader_is_no_earlier_ones_though_it_has_the_same_number(tmp_path: Path) -> None:
    named = {**environment(tmp_path), "OARLOCK_ROUND": "3"}
    first, second = (read_job({**named, "OARLOCK_TERM": term}).owner for term in ("1", "2"))
    assert first == Owner("u", 2, 3)
    assert second.round > first.round
    assert second.round_mark != first.round_mark


def test_a_field_that_this_image_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    fields = environment(tmp_path, training={"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "turbo": True})
    with pytest.raises(ConfigurationError, match=r"training\.turbo"):
        read_job(fields)


def test_a_misspelled_field_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    datasets = [{"name": "photos", "source": {"path": "/data"}, "repeat": 3}]
    training = {"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "data": {"datasets": datasets}}
    with pytest.raises(ConfigurationError) as refused:
        read_job(environment(tmp_path, training=training))
    assert "training.data.datasets[0].repeat: there is no such field; did you mean repeats?" in str(refused.value)
    assert "at least" not in str(refused.value)


def test_a_job_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="version 3"):
        read_job(environment(tmp_path, version=3))


DEFAULTS_OF_A_LATER_RELEASE = {
    "turbo": False,
    "method": "Full",
    "seed": 7,
    "lights": {"colour": "Red"},
    "objective": {"timestepShift": 2.0, "moon": "Full"},
    "data": {"datasets": [{"repeats": 4, "zebra": 1}]},
}


def test_a_default_that_a_later_release_added_is_passed_over_and_one_that_it_changed_holds(tmp_path: Path) -> None:
    training = read_job(environment(tmp_path, training_defaults=DEFAULTS_OF_A_LATER_RELEASE)).training
    assert (training.seed, training.objective.timestep_shift, training.data.datasets[0].repeats) == (7, 2.0, 4)
    assert training.model_dump().keys() & {"turbo", "lights"} == set()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"turbo": True}, r"training\.turbo: there is no such field"),
        ({"lights": {}}, r"training\.lights: there is no such field"),
        ({"objective": {"moon": "New"}}, r"training\.objective\.moon: there is no such field"),
    ],
)
def test_what_the_job_sets_is_never_passed_over(given: dict[str, Any], named: str, tmp_path: Path) -> None:
    training = json.loads(Path(environment(tmp_path)["OARLOCK_CONFIG"]).read_text())["training"] | given
    fields = environment(tmp_path, training=training, training_defaults=DEFAULTS_OF_A_LATER_RELEASE)
    with pytest.raises(ConfigurationError, match=named) as refused:
        read_job(fields)
    assert str(refused.value).count("there is no such field") == 1, "nothing but what the job sets"


def test_a_missing_place_is_named(tmp_path: Path) -> None:
    fields = environment(tmp_path)
    del fields["LOCAL_RANK"]
    with pytest.raises(ConfigurationError, match="LOCAL_RANK"):
        read_job(fields)
