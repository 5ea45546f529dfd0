"""Real runs: two processes, gloo, DeepSpeed ZeRO-1, diffusers' classes, photographs. Numbers agree over any ending."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.checkpoint.format import valid_checkpoints

if TYPE_CHECKING:
    from gang import Gang, Run


def names(output: Path) -> list[str]:
    return [one.path.name for one in valid_checkpoints(output)]


@pytest.fixture(scope="module")
def undisturbed(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run from the first step to the exported model, which fills an empty cache of embeddings for those that follow."""
    output = tmp_path_factory.mktemp("undisturbed")
    gang.cache = tmp_path_factory.mktemp("cache")  # another file's run may have filled the gang's
    return output, gang.run(output, gang.training())


def test_a_run_trains_every_step_saves_exports_and_ends_with_0(undisturbed: tuple[Path, Run], gang: Gang) -> None:
    output, run = undisturbed
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert list(run.losses) == list(range(1, 9))
    assert names(output) == ["step-8-a1", "step-4-a1"]
    phases = [event["name"] for event in run.of("phase") if event["rank"] == 0]
    assert phases[:3] == ["Preprocessing", "Starting", "Training"]
    assert phases[-3:] == ["Saving", "Exporting", "Done"]
    assert set(phases[3:-3]) <= {"Saving", "Training"}  # the first save, where it was not done before the second
    assert run.of("model")[0]["path"] == str(output / "model")
    saved = run.of("checkpoint")
    assert {event["step"] for event in saved} == {4, 8}
    assert {event["path"] for event in saved} == {str(output / "checkpoints" / name) for name in names(output)}


def test_others_can_read_all_that_a_run_writes(undisturbed: tuple[Path, Run]) -> None:
    output, _ = undisturbed
    written = list(output.rglob("*"))
    assert len(written) > 20
    assert [path for path in written if path.stat().st_mode & 0o044 != 0o044] == []


def test_every_rank_tells_its_agent_of_each_step_and_of_work_that_is_none(undisturbed: tuple[Path, Run]) -> None:
    _, run = undisturbed
    for rank in (0, 1):
        told = [event for event in run.events if event["rank"] == rank]
        assert [event["step"] for event in told if event["event"] == "step"] == list(range(1, 9))
        kinds = [event["name"] if event["event"] == "phase" else event["event"] for event in told]
        encoding = kinds[kinds.index("Preprocessing") : kinds.index("Starting")]
        assert "working" in encoding
        assert "waiting" in encoding
        assert "Exporting" in kinds


@pytest.mark.deep
def test_the_loss_falls(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(steps=24, checkpoint={}))
    losses = list(run.losses.values())
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


def test_metrics_are_one_json_line_per_step_with_what_the_agent_was_told(undisturbed: tuple[Path, Run]) -> None:
    output, run = undisturbed
    started, *lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert set(started["startSeconds"]) == {"meet", "output", "fetch", "data", "model", "rest"}
    assert started["step"] == 0
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert {line["step"]: line["loss"] for line in lines} == run.losses
    assert all(line["attempt"] == 1 and line["total"] == 8 and line["imagesPerSecond"] > 0 for line in lines)
    assert lines[1]["learningRate"] == pytest.approx(0.5e-3)


def test_killed_at_any_moment_the_next_attempt_repeats_the_undisturbed_losses_exactly(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    _, reference = undisturbed

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["rank"], event["step"]) == (1, 2):
            gang.kill(1)

    # The save of step 4 waits for that of step 2, so a checkpoint is told of long before the last step.
    crashed = gang.run(tmp_path, gang.training(steps=8, checkpoint={"intervalSteps": 2}), on_event=kill)
    assert crashed.codes == {0: ExitCode.PEER_LOST, 1: -9}, gang.log()
    assert re.fullmatch(r"lost connection to a peer \(gloo: [^.\n]+( \[[\d.]+\]:\d+)?(: [^.\n]+)?\)", crashed.failure)
    newest = valid_checkpoints(tmp_path)[0]
    resumed = gang.run(tmp_path, gang.training(steps=8), attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert {event["step"] for event in resumed.of("resumed")} == {newest.step}
    words = f"resuming from step {newest.step} of 8: checkpoint {newest.path}, made by this job in attempt 1"
    assert [event["message"] for event in resumed.of("note")] == [words]
    assert f"\n{words}\n" in gang.log()
    assert not [event for event in resumed.of("phase") if event["name"] == "Preprocessing"]
    assert resumed.losses == {step: loss for step, loss in reference.losses.items() if step > newest.step}
    assert reference.losses.items() >= crashed.losses.items()


def test_asked_to_leave_all_ranks_save_the_same_step_and_the_next_attempt_goes_on(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    _, reference = undisturbed

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 2:
            gang.ask_to_leave()

    left = gang.run(tmp_path, gang.training(checkpoint={}), on_event=leave)
    assert left.codes == {0: ExitCode.LEFT_ON_REQUEST, 1: ExitCode.LEFT_ON_REQUEST}, gang.log()
    stopped_at = max(left.losses)
    assert names(tmp_path) == [f"step-{stopped_at}-a1"]
    assert stopped_at < 8
    resumed = gang.run(tmp_path, gang.training(checkpoint={}), attempt=2)
    assert resumed.losses == {step: loss for step, loss in reference.losses.items() if step > stopped_at}


def test_a_damaged_newest_checkpoint_is_passed_over_for_the_older_one(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, reference = undisturbed
    shutil.copytree(output, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".oarlock" / "finished").unlink()
    shard = tmp_path / "checkpoints" / "step-8-a1" / "rank-00001.state"
    body = bytearray(shard.read_bytes())
    body[len(body) // 2] ^= 0xFF
    shard.write_bytes(body)
    assert names(tmp_path)[0] == "step-8-a1"  # sizes alone cannot tell
    run = gang.run(tmp_path, gang.training(), attempt=2)
    assert {event["step"] for event in run.of("resumed")} == {4}
    assert run.losses == {step: loss for step, loss in reference.losses.items() if step > 4}


def test_an_attempt_that_was_overtaken_is_fenced_and_changes_nothing(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, _ = undisturbed
    shutil.copytree(output / ".oarlock", tmp_path / ".oarlock")
    (tmp_path / ".oarlock" / "owner").write_text('{"jobUid": "job-uid", "attempt": 3}')
    before = sorted(tmp_path.rglob("*"))
    run = gang.run(tmp_path, gang.training(), attempt=2)
    assert run.codes == {0: ExitCode.FENCED, 1: ExitCode.FENCED}
    assert "attempt 3 owns the output" in run.failure
    assert sorted(tmp_path.rglob("*")) == before


def test_an_attempt_that_is_overtaken_while_it_trains_commits_nothing_more(gang: Gang, tmp_path: Path) -> None:
    def overtake(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and event["step"] == 4:
            (tmp_path / ".oarlock" / "owner").write_text('{"jobUid": "job-uid", "attempt": 2}')

    run = gang.run(tmp_path, gang.training(), on_event=overtake)
    assert set(run.codes.values()) == {ExitCode.FENCED}, gang.log()
    assert names(tmp_path) == ["step-4-a1"]
    assert not (tmp_path / "model").exists()


def test_a_run_that_is_done_already_only_exports(undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path) -> None:
    output, _ = undisturbed
    shutil.copytree(output / ".oarlock", tmp_path / ".oarlock")
    shutil.copytree(output / "checkpoints", tmp_path / "checkpoints")
    run = gang.run(tmp_path, gang.training(), attempt=2)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert not run.losses
    assert (tmp_path / "model" / "transformer" / "config.json").exists()


def test_a_new_job_that_goes_on_from_the_work_of_another_says_whose_it_is(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    """As after kubectl delete and apply: the same name, the same output, another UID."""
    output, _ = undisturbed
    shutil.copytree(output, tmp_path, dirs_exist_ok=True)
    run = gang.run(tmp_path, gang.training(), uid="made-anew")
    assert run.codes == {0: 0, 1: 0}, gang.log()
    said = f"all 8 steps were done already: exporting checkpoint {tmp_path}/checkpoints/step-8-a1"
    maker = "made by job UID job-uid, not by this one (made-anew)"
    assert [event["message"] for event in run.of("note")] == [f"{said}, {maker}"]


@pytest.mark.deep
def test_the_same_samples_give_the_same_loss_whatever_the_number_of_ranks(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    _, reference = undisturbed
    alone = gang.run(tmp_path, gang.training(steps=2, gradientAccumulation=2, checkpoint={}), ranks=1)
    assert alone.codes == {0: 0}, gang.log()
    assert alone.losses[1] == pytest.approx(reference.losses[1], rel=1e-5)
    assert alone.losses[2] == pytest.approx(reference.losses[2], rel=1e-2)  # after one update in bfloat16


def test_buckets_that_cannot_fill_a_step_end_in_85_before_anything_is_encoded(gang: Gang, tmp_path: Path) -> None:
    data = gang.data(textEmbeds={"path": str(tmp_path / "t")}, imageEmbeds={"path": str(tmp_path / "i")})
    run = gang.run(tmp_path / "out", gang.training(batchSize=16, data=data))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert 'dataset "photos": 3 of 3 aspect buckets' in run.failure
    assert not (tmp_path / "i").exists()


def test_gpus_that_are_asked_for_and_absent_end_in_85(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(), gpus_per_node=2)
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert "CUDA finds none" in run.failure


def test_a_model_that_is_not_there_ends_in_85_before_the_ranks_meet(gang: Gang, tmp_path: Path) -> None:
    model = {"family": "Flux1", "path": str(tmp_path / "nowhere")}
    run = gang.run(tmp_path / "out", gang.training(model=model))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert f"training.model.path: {tmp_path}/nowhere is no folder here" in run.failure
    assert not (tmp_path / "out").exists()


def test_weights_to_start_from_that_are_not_there_end_in_85(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path / "out", gang.training(initFrom={"path": str(tmp_path / "nowhere")}))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert f"training.initFrom.path: {tmp_path}/nowhere is no folder here" in run.failure


def test_missing_embeddings_end_in_85_where_encoding_is_not_wanted(gang: Gang, tmp_path: Path) -> None:
    empty = {name: {"path": str(tmp_path / name)} for name in ("imageEmbeds", "textEmbeds")}
    run = gang.run(tmp_path / "out", gang.training(data=gang.data(**empty, onMissingEmbeds="Fail")))
    assert set(run.codes.values()) == {ExitCode.CONFIGURATION}
    assert "24 latents and 25 text embeddings are not cached" in run.failure


@pytest.mark.deep
def test_preprocessing_alone_publishes_all_and_training_then_encodes_nothing(gang: Gang, tmp_path: Path) -> None:
    data = gang.data(textEmbeds={"path": str(tmp_path / "t")}, imageEmbeds={"path": str(tmp_path / "i")})
    first = gang.run(tmp_path / "prepared", gang.training(task="Preprocess", data=data))
    assert first.codes == {0: 0, 1: 0}, gang.log()
    assert not first.losses
    second = gang.run(tmp_path / "trained", gang.training(data=data, steps=1), uid="another")
    assert second.codes == {0: 0, 1: 0}, gang.log()
    assert "Preprocessing" not in {event["name"] for event in second.of("phase")}


@pytest.mark.deep
def test_pictures_that_cannot_be_used_are_named_and_the_run_goes_on(gang: Gang, pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(pictures, folder)
    torn, mute, *_ = sorted(folder.glob("*.png"))
    torn.write_bytes(torn.read_bytes()[:-400])
    mute.with_suffix(".txt").unlink()
    run = gang.run(tmp_path / "out", gang.training(steps=1, data=gang.data(folder)))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    listed = (tmp_path / "out" / ".oarlock" / "quarantine.jsonl").read_text()
    assert torn.name in listed
    assert mute.name in listed
    assert any("left out" in event["message"] for event in run.of("note"))


@pytest.mark.deep
def test_masked_padding_guidance_dropout_and_accumulation_train_too(gang: Gang, tmp_path: Path) -> None:
    objective = {
        "attentionMask": True, "captionDropout": 0.5, "autoShift": True, "loss": "Huber",
        "guidance": {"mode": "Random", "min": 1, "max": 4},
    }  # fmt: skip
    fields = {
        "objective": objective, "gradientAccumulation": 2, "epochs": 1, "batchSize": 1,
        "activationCheckpointing": {"mode": "Full"}, "engine": {"strategy": "DeepSpeed", "zeroStage": 2},
    }  # fmt: skip
    training = {key: value for key, value in gang.training(**fields).items() if key != "steps"}
    run = gang.run(tmp_path, training)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert len(run.losses) == 24 // 4


def test_only_the_newest_checkpoints_are_kept(gang: Gang, tmp_path: Path) -> None:
    run = gang.run(tmp_path, gang.training(steps=5, checkpoint={"intervalSteps": 1, "keep": 2}))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-4-a1", "step-5-a1"]


def test_training_starts_from_the_weights_of_an_earlier_run_without_its_steps(
    undisturbed: tuple[Path, Run], gang: Gang, tmp_path: Path
) -> None:
    output, reference = undisturbed
    run = gang.run(tmp_path, gang.training(steps=1, initFrom={"path": str(output / "model")}), uid="another")
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert not run.of("resumed")
    assert run.losses[1] < reference.losses[1]
