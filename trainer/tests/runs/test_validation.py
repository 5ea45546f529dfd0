"""Real runs that make pictures, and the task that only judges: two processes, one of the session's models."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import REPORT_PAGE
from oarlock_trainer.agent.report.write import write

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

PROMPTS = [
    {"name": "boat", "prompt": "a boat"},
    {"name": "cat", "prompt": "two cats"},
    {"name": "moon", "prompt": "moon"},
]
STEPS = 5


def training(gang: Gang, **fields: Any) -> dict[str, Any]:
    """Steps over the session's photographs, which are judged, too; pictures after steps 2, 4 and 5."""
    source = {"path": str(gang.pictures)}
    datasets = [{"name": "photos", "source": source}, {"name": "unseen", "source": source, "role": "Evaluation"}]
    pictures = {"everySteps": 2, "prompts": PROMPTS, "resolutions": ["64x48"], "inferenceSteps": 2}
    settings = {"steps": STEPS, "checkpoint": {"intervalSteps": 4}, "validation": pictures}
    return gang.training(**settings | {"data": gang.data(datasets=datasets)} | fields)


def files(output: Path) -> list[str]:
    return sorted(str(path.relative_to(output / "validation")) for path in (output / "validation").rglob("*.png"))


def lines(output: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if kind in line]


@pytest.fixture(scope="module")
def validated(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    output = tmp_path_factory.mktemp("validated")
    (output / "validation/step-2/boat-64x48.png").mkdir(parents=True)  # where a picture is to be: it cannot be written
    return output, gang.run(output, training(gang))


def test_pictures_appear_at_their_steps_and_at_the_end_with_a_grid_and_an_index(
    validated: tuple[Path, Run], gang: Gang
) -> None:
    output, run = validated
    assert run.codes == {0: 0, 1: 0}, gang.log()
    names = ["boat-64x48.png", "cat-64x48.png", "grid.png", "moon-64x48.png"]
    assert files(output) == [f"step-{step}/{name}" for step in (2, 4, 5) for name in names]
    with Image.open(output / "validation/step-4/moon-64x48.png") as picture:
        assert (picture.size, picture.mode) == ((64, 48), "RGB")
    entries = json.loads((output / "validation/index.json").read_text())["pictures"]
    assert [entry["step"] for entry in entries] == [2, 2, 4, 4, 4, 5, 5, 5]
    assert all(entry["seconds"] > 0 for entry in entries)
    phases = [event["name"] for event in run.of("phase") if event["rank"] == 0]
    assert phases.count("Validating") == 3


def test_pictures_are_those_of_the_weights_of_their_step(validated: tuple[Path, Run]) -> None:
    output, _ = validated
    bodies = {(output / f"validation/step-{step}/cat-64x48.png").read_bytes() for step in (2, 4, 5)}
    assert len(bodies) == 3


def test_a_picture_that_cannot_be_made_is_told_and_the_run_goes_on(validated: tuple[Path, Run]) -> None:
    output, run = validated
    assert list(run.losses) == list(range(1, STEPS + 1))
    notes = [event["message"] for event in run.of("note")]
    told = [note for note in notes if note.startswith("2 pictures of step 2 in ")]
    assert len(told) == 1
    assert "1 failed: boat-64x48.png (IsADirectoryError" in told[0]
    counts = [
        (one["step"], one["validation"]["pictures"], one["validation"]["failed"]) for one in lines(output, "validation")
    ]
    assert counts == [(2, 2, 1), (4, 3, 0), (5, 3, 0)]


def test_pictures_change_nothing_of_what_is_trained(validated: tuple[Path, Run], gang: Gang, tmp_path: Path) -> None:
    _, run = validated
    without = training(gang)
    del without["validation"]
    plain = gang.run(tmp_path, without)
    assert plain.losses == run.losses


@pytest.mark.deep
def test_a_resumed_run_makes_only_the_pictures_that_are_missing(
    validated: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, _ = validated
    shutil.copytree(output, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".oarlock/finished").unlink()
    shutil.rmtree(tmp_path / "checkpoints/step-5-a1")
    (tmp_path / "validation/step-4/cat-64x48.png").unlink()
    kept = tmp_path / "validation/step-5/moon-64x48.png"
    before = kept.stat().st_mtime_ns
    run = gang.run(tmp_path, training(gang), attempt=2)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert list(run.losses) == [5]
    second = [one for one in lines(tmp_path, "validation") if one["attempt"] == 2]
    assert [(one["step"], one["validation"]["pictures"]) for one in second] == [(4, 1)]
    assert kept.stat().st_mtime_ns == before
    remade = tmp_path / "validation/step-4/cat-64x48.png"
    assert remade.read_bytes() == (output / "validation/step-4/cat-64x48.png").read_bytes()


@pytest.mark.deep
def test_evaluate_reports_the_losses_and_pictures_that_the_training_run_had_at_its_checkpoint(
    validated: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, _ = validated
    shutil.copytree(output, tmp_path, dirs_exist_ok=True)
    judged = training(gang, task="Evaluate")
    del judged["steps"]
    run = gang.run(tmp_path, judged, uid="another-job")
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert not run.of("step")
    report = json.loads((tmp_path / "reports/evaluation.json").read_text())
    assert report["step"] == STEPS
    assert report["losses"] == pytest.approx(lines(output, "evaluationLoss")[-1]["evaluationLoss"], rel=1e-6)
    assert report["losses"].keys() == {"unseen"}
    assert [entry["file"] for entry in report["pictures"]] == [f"step-5/{one['name']}-64x48.png" for one in PROMPTS]
    same = "validation/step-5/moon-64x48.png"
    assert (tmp_path / same).read_bytes() == (output / same).read_bytes()
    assert [event["name"] for event in run.of("phase") if event["rank"] == 0][-2:] == ["Validating", "Done"]
    write(tmp_path, phase="Succeeded")
    page = (tmp_path / REPORT_PAGE).read_text()
    assert "Loss on unseen data" in page
    assert f'src="../{same}"' in page


@pytest.mark.deep
def test_with_an_average_it_is_what_training_draws_and_measures_and_weights_come_back_to_the_last_digit(
    gang: Gang, tmp_path: Path
) -> None:
    """Shares of DeepSpeed's and DDP's state are cut differently; without pictures both train alike to the last digit."""
    fields: dict[str, Any] = {"steps": 3, "ema": {"decay": 0.6}}
    plain = gang.run(tmp_path / "plain", training(gang, validation=None, data=gang.data(), **fields))
    name, measured = "validation/step-3/cat-64x48.png", []
    for strategy in ("DeepSpeed", "DDP"):
        output = tmp_path / strategy
        run = gang.run(output, training(gang, engine={"strategy": strategy}, **fields))
        assert run.losses == plain.losses, gang.log()
        measured.append(lines(output, "evaluationLoss")[-1]["evaluationLoss"])
    drawn = (output / name).read_bytes()
    shutil.rmtree(output / "validation")
    judged = gang.run(output, training(gang, task="Evaluate", **fields), uid="another-job")
    assert judged.codes == {0: 0, 1: 0}, gang.log()
    measured.append(json.loads((output / "reports/evaluation.json").read_text())["losses"])
    for one in measured[1:]:
        assert one == pytest.approx(measured[0], rel=1e-5)
    assert (output / name).read_bytes() == drawn


def test_evaluate_judges_the_weights_of_initfrom_where_the_output_has_no_checkpoint(
    validated: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, _ = validated
    run = gang.run(tmp_path, training(gang, task="Evaluate", validation=None, initFrom={"path": str(output / "model")}))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    report = json.loads((tmp_path / "reports/evaluation.json").read_text())
    assert report["step"] == 0
    assert report["model"] == str(output / "model")
    assert report["losses"] == pytest.approx(lines(output, "evaluationLoss")[-1]["evaluationLoss"], rel=1e-6)
    assert not (tmp_path / "validation").exists()


@pytest.mark.deep
def test_evaluate_of_adapters_judges_the_adapters(gang: Gang, tmp_path: Path) -> None:
    adapters = {"method": "LoRA", "lora": {"rank": 4}, "validation": None}
    trained = gang.run(tmp_path, training(gang, **adapters))
    judged = gang.run(tmp_path, training(gang, task="Evaluate", **adapters), uid="another-job")
    assert trained.codes == judged.codes == {0: 0, 1: 0}, gang.log()
    report = json.loads((tmp_path / "reports/evaluation.json").read_text())
    assert report["losses"] == pytest.approx(lines(tmp_path, "evaluationLoss")[-1]["evaluationLoss"], rel=1e-6)
    assert lines(tmp_path, "evaluationLoss")[0]["evaluationLoss"] != report["losses"]


def test_evaluate_without_anything_to_judge_by_ends_in_85_with_what_to_add(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(task="Evaluate"))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert "give a data set role: Evaluation" in run.failure


@pytest.mark.deep
def test_asked_to_leave_amid_pictures_all_ranks_give_them_up_save_and_leave(gang: Gang, tmp_path: Path) -> None:
    """Undisturbed, these pictures would take longer than all other tests together."""

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "phase" and event["name"] == "Validating" and event["rank"] == 0:
            gang.ask_to_leave()

    pictures = {"everySteps": 2, "prompts": PROMPTS, "resolutions": ["128x128"], "inferenceSteps": 1000}
    run = gang.run(tmp_path, training(gang, validation=pictures), on_event=leave)
    assert set(run.codes.values()) == {ExitCode.LEFT_ON_REQUEST}, gang.log()
    assert list(run.losses) == [1, 2, 3]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-3-a1"]
    assert lines(tmp_path, "validation")[0]["validation"]["leftOut"] == 3
