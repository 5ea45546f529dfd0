"""`oarlock-trainer plan`: what a run would begin with, told without one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from oarlock_trainer.cli import main
from oarlock_trainer.commands import local_manifest
from oarlock_trainer.plan.words import describe
from oarlock_trainer.runtime.errors import ConfigurationError, NotThereError
from oarlock_trainer.runtime.progress_line import END


def manifest(folder: Path, *datasets: dict[str, Any], gpus: int = 2, **training: Any) -> Path:
    sets = [{"name": "photos", "source": {"path": "/output/photos"}, **one} for one in datasets or ({},)]
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "flux"},
        "spec": {
            "nodes": 2,
            "gpusPerNode": gpus,
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "training": {
                "model": {"family": "Flux1", "path": "/models/flux"},
                "steps": 100,
                "batchSize": 2,
                "resolution": 64,
                "data": {"datasets": sets},
                **training,
            },
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all([{"kind": "ConfigMap"}, job]))
    return path


def plan(job: Path, paths: dict[str, Path]) -> str:
    """What is printed."""
    from oarlock_trainer.commands import plan_dry_run  # noqa: PLC0415 - torch, for those alone that need it

    here = {pod: str(path) for pod, path in paths.items()}
    return describe(plan_dry_run.dry_run(*local_manifest.read_manifest(job), here))


def command(job: Path, *paths: str) -> tuple[int, str, str]:
    words = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(job)]
    for path in paths:
        words += ["--path", path]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def rows(said: str) -> list[list[str]]:
    lines = said.splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("dataset "))
    return [line.split() for line in lines[table + 1 : lines.index("", table)]]


def test_a_plan_tells_batch_buckets_steps_and_bytes_for_all_ranks_and_writes_nothing(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    before = sorted(pictures.parent.rglob("*"))
    code, said, complaints = command(
        manifest(tmp_path), f"/output/photos={pictures}", f"/models={tiny_flux.parent}", f"/models/flux={tiny_flux}"
    )
    assert (code, [line for line in complaints.splitlines() if not line.endswith(END)]) == (0, [])
    assert "effective batch 8 = 2 per GPU x 4 GPUs x 1 accumulation" in said
    # A picture for each sample, and a whole step for each bucket, which make the three of an epoch.
    assert rows(said) == [
        ["photos", "48x80", "0.60", "8", "1", "8", "1"],
        ["photos", "64x64", "1.00", "8", "1", "8", "1"],
        ["photos", "80x48", "1.67", "8", "1", "8", "1"],
    ]
    assert "steps         100 (3 steps an epoch, 33.3 epochs)" in said
    assert "pictures      24, captions 24" in said
    assert "latents" in said
    assert sorted(pictures.parent.rglob("*")) == before


@pytest.mark.deep
def test_a_job_that_would_fail_fails_in_the_plan_with_the_same_words(tmp_path: Path, pictures: Path) -> None:
    code, said, complaints = command(
        manifest(tmp_path, gpus=8), f"/output={pictures.parent}", f"/output/photos={pictures}"
    )
    assert (code, said) == (85, "")
    assert "3 of 3 aspect buckets hold less than one optimizer step" in complaints
    assert "repeats needed" in complaints
    assert "--path" not in complaints


def test_a_path_that_is_not_here_is_told_with_its_field_and_how_to_say_where_it_is(tmp_path: Path) -> None:
    code, said, complaints = command(manifest(tmp_path))
    assert (code, said) == (85, "")
    assert re.search(r"source.*/output/photos", complaints)
    assert "--path POD=HERE" in complaints
    prompts = {"everySteps": 10, "promptsFrom": {"path": "/output/prompts.json"}}
    with pytest.raises(NotThereError, match="promptsFrom") as raised:
        plan(manifest(tmp_path, validation=prompts), {})
    assert "--path POD=HERE" in raised.value.outside_of_pods


def test_a_model_is_missing_only_where_its_storage_is_here(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = str(manifest(tmp_path, model={"family": "Flux1", "path": "/output/models/flux"}, gpus=0))
    plan = ["plan", "-f", job, "--path", f"/output/photos={pictures}"]
    assert main(plan) == 0
    assert "note          training.model.path: /output/models/flux is not on this machine" in capsys.readouterr().out
    assert main([*plan, "--path", f"/output={tmp_path}"]) == 85
    assert f"training.model.path: {tmp_path}/models/flux is no folder here" in capsys.readouterr().err
    mounted = tmp_path / "mounted.yaml"
    mounted.write_text(
        Path(job)
        .read_text()
        .replace("output:", f"output:\n    mountPath: {tmp_path}")
        .replace("/output/models", f"{tmp_path}/models")
    )
    assert main(["plan", "-f", str(mounted), "--path", f"/output/photos={pictures}"]) == 85
    assert f"training.model.path: {tmp_path}/models/flux is no folder here" in capsys.readouterr().err


def test_a_hub_that_does_not_answer_ends_with_84(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
    job = manifest(tmp_path, model={"family": "Flux1", "hub": {"repo": "o/m"}})
    assert main(["plan", "-f", str(job), "--path", f"/output/photos={pictures}"]) == 84
    assert "cannot be reached" in capsys.readouterr().err


def test_the_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    assert re.search(r"exit code.* 0 .* 84 .* 85 ", capsys.readouterr().out, re.DOTALL)


def test_all_folders_that_are_not_here_are_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    masked = {"conditioning": {"kind": "Mask", "source": {"path": "/output/masks"}}}
    job = manifest(tmp_path, masked, {"name": "boats", "source": {"path": "/output/boats"}})
    words = f"import sys; from oarlock_trainer.cli import main; print(main(['plan', '-f', '{job}']), 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", words], check=False, capture_output=True, text=True)
    assert ended.stdout == "85 False\n"
    assert "/output/photos is no folder here" in ended.stderr
    assert "/output/boats is no folder here" in ended.stderr
    assert 'datasets["photos"].conditioning.source.path: /output/masks is no folder here' in ended.stderr


def test_masks_are_found_counted_and_missed(tmp_path: Path, pictures: Path) -> None:
    masks = tmp_path / "masks"
    masks.mkdir()
    for path in pictures.glob("*.png"):
        shutil.copy(path, masks / path.with_suffix(".jpg").name)
    masked = {"conditioning": {"kind": "Mask", "source": {"path": "/output/masks"}}}
    job, paths = manifest(tmp_path, masked), {"/output/photos": pictures, "/output/masks": masks}
    said = plan(job, paths)
    # FLUX.1's latents have 16 channels, a mask has one: 24 pictures of 64, 60 and 60 latent pixels.
    assert "latents 47.1 kB, masks or references 2.94 kB, text" in said
    lacking = min(masks.iterdir())
    lacking.unlink()
    said = plan(manifest(tmp_path, masked | {"repeats": 1}), paths)
    assert "note          photos: 23 of 24 pictures (1 without mask)" in said
    assert f"note          photos: {lacking.stem}.png: no mask: {masks} has no picture {lacking.stem}.png" in said
    with pytest.raises(NotThereError, match=r"conditioning.source.path: /output/masks is no folder here"):
        plan(job, {"/output/photos": pictures})


@pytest.mark.parametrize(
    ("flavor", "tokens", "stored"),
    [
        ("Kontext", {2 * 16, 2 * 15}, "latents 47.1 kB, masks or references 47.1 kB, text"),
        ("Fill", {16, 15}, "latents 47.1 kB, masks or references 236 kB, text"),
    ],
)
def test_references_are_latents_and_may_be_tokens_as_well(
    tmp_path: Path, pictures: Path, flavor: str, tokens: set[int], stored: str
) -> None:
    """Holes are 64 more channels beside sixteen."""
    from oarlock_trainer.commands import plan_dry_run  # noqa: PLC0415 - torch, for those alone that need it

    edits = {"conditioning": {"kind": "Reference", "source": {"path": "/output/before"}}}
    model = {"family": "Flux1", "flavor": flavor, "path": "/models/flux"}
    paths = {"/output/photos": str(pictures), "/output/before": str(shutil.copytree(pictures, tmp_path / "before"))}
    found = plan_dry_run.dry_run(*local_manifest.read_manifest(manifest(tmp_path, edits, model=model)), paths)
    assert found.image_tokens == tokens
    assert stored in describe(found)


@pytest.mark.parametrize(("flip", "dropout", "texts"), [(False, 0, 24), (False, 0.1, 48), (True, 0.1, 96)])
def test_texts_beside_references_are_counted_for_each_of_these(
    tmp_path: Path, pictures: Path, *, flip: bool, dropout: float, texts: int
) -> None:
    """Of 24 pictures with a caption each; without words and mirrored each is one more."""
    edits = {"conditioning": {"kind": "Reference", "source": {"path": "/output/before"}}, "randomFlip": flip}
    model = {"family": "QwenImage", "flavor": "Edit", "path": "/models/edit"}
    paths = {"/output/photos": pictures, "/output/before": Path(shutil.copytree(pictures, tmp_path / "before"))}
    job = manifest(tmp_path, edits, model=model, objective={"captionDropout": dropout})
    said = plan(job, paths)
    assert f"pictures      24, captions {texts} beside references" in said
    assert "Cache " in said
    assert "OnTheFly" not in said


@pytest.mark.deep
def test_who_waits_for_a_hub_is_told_so(tmp_path: Path, pictures: Path) -> None:
    job = manifest(tmp_path, model={"family": "Flux1", "hub": {"repo": "o/m"}})
    words = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(job), "--path", f"/output/photos={pictures}"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = {
            "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "NO_PROXY": "127.0.0.1",
            "TMPDIR": str(tmp_path),
        }
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"} | hub
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as waiting:
            said = waiting.stderr
            assert said
            try:
                assert f"reading the model's configuration: o/m of the hub{END}\n" in said
            finally:
                waiting.kill()


def test_a_job_that_only_fills_caches_needs_no_whole_steps(tmp_path: Path, pictures: Path) -> None:
    said = plan(manifest(tmp_path, gpus=8, task="Preprocess"), {"/output/photos": pictures})
    assert rows(said)[0] == ["photos", "48x80", "0.60", "8"]
    assert "steps         none" in said
    assert "pictures      24, captions 24" in said


def test_steps_are_whole_where_a_bucket_has_more_than_they_take(tmp_path: Path, pictures: Path) -> None:
    said = plan(manifest(tmp_path, {"repeats": 2}, batchSize=5, gpus=1), {"/output/photos": pictures})
    assert [(row[5], row[6]) for row in rows(said)] == [("24", "2")] * 3
    assert "(6 steps an epoch" in said


def test_a_dataset_that_is_never_drawn_from_is_encoded_and_no_part_of_a_step(tmp_path: Path, pictures: Path) -> None:
    never = {"name": "spare", "probability": 0.0}
    job = manifest(tmp_path, {}, never)
    said = plan(job, {"/output/photos": pictures})
    assert {row[0] for row in rows(said)} == {"photos"}
    assert "(3 steps an epoch, 33.3 epochs)" in said
    assert "pictures      48, captions 24" in said
    assert "note          spare: probability 0, so it is encoded and never trained on" in said


def test_a_plan_asks_a_store_no_faster_than_the_run_would(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oarlock_trainer.commands import plan_dry_run  # noqa: PLC0415 - torch, for those alone that need it

    bounds: list[int | None] = []
    monkeypatch.setattr(plan_dry_run, "check_config", lambda _, locations: bounds.append(locations.pool_size))
    datasets = [{"name": "photos", "source": {"path": "/output/photos"}}]
    plan(
        manifest(tmp_path, data={"datasets": datasets, "tuning": {"s3MaxConnections": 4}}), {"/output/photos": pictures}
    )
    assert bounds == [4]


def latents(said: str) -> str:
    return said.partition("latents ")[2].partition(",")[0]


def test_bytes_are_those_of_all_latents_that_are_stored(tmp_path: Path, pictures: Path) -> None:
    here = {"/output/photos": pictures}
    once = latents(plan(manifest(tmp_path), here))
    twice = latents(plan(manifest(tmp_path, {}, {"name": "judged", "role": "Evaluation"}), here))
    live = {"name": "live", "imageEmbeds": {"mode": "OnTheFly"}}
    assert float(twice.split()[0]) == pytest.approx(2 * float(once.split()[0]), rel=0.02)
    assert latents(plan(manifest(tmp_path, {}, live | {"randomFlip": True}), here)) == once
    assert latents(plan(manifest(tmp_path, {"randomFlip": True}), here)) == twice


def test_a_plan_names_the_pictures_that_are_left_out_and_says_that_the_model_was_not_looked_at(
    tmp_path: Path, pictures: Path
) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(pictures, copied)
    names = sorted(copied.glob("*.png"))
    names[0].write_bytes(b"no picture")
    names[1].with_suffix(".txt").unlink()
    said = plan(manifest(tmp_path, gpus=1), {"/output/photos": copied})
    assert "photos: 22 of 24 pictures" in said
    assert "1 unreadable" in said
    assert "1 without caption" in said
    assert f"note          photos: {names[0].name}: " in said
    assert f"note          photos: {names[1].name}: " in said
    assert "/models/flux is not on this machine" in said


def test_of_many_bad_pictures_a_plan_names_the_first_and_counts_the_others(tmp_path: Path, pictures: Path) -> None:
    for number in range(25):  # 600 pictures, of which six may be bad
        shutil.copytree(pictures, tmp_path / "photos" / str(number), copy_function=os.link)
    bad = sorted((tmp_path / "photos/3").glob("*.png"))[:6]
    for path in bad:
        path.unlink()
        path.write_bytes(b"no picture")
    said = plan(manifest(tmp_path), {"/output/photos": tmp_path / "photos"})
    assert [path.name for path in bad if f"photos: 3/{path.name}: " in said] == [path.name for path in bad[:5]]
    assert "note          photos: and 1 more that cannot be used" in said


def test_of_too_many_bad_pictures_a_refused_plan_names_the_first_and_no_list_that_is_gone(
    tmp_path: Path, pictures: Path
) -> None:
    shutil.copytree(pictures, tmp_path / "photos")
    for path in sorted((tmp_path / "photos").glob("*.png"))[:6]:
        path.write_bytes(b"no picture")
    with pytest.raises(ConfigurationError, match="6 of 24 pictures cannot be used") as raised:
        plan(manifest(tmp_path), {"/output/photos": tmp_path / "photos"})
    assert "listed in" not in str(raised.value)
    assert str(raised.value).endswith("or correct the source and captions of the dataset.")


def test_a_plan_needs_of_the_model_no_more_than_the_transformers_configuration(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    """With pictures to be made on the way, too, which the run needs the scheduler's folder for."""
    bare = tmp_path / "bare"
    (bare / "transformer").mkdir(parents=True)
    shutil.copyfile(tiny_flux / "transformer/config.json", bare / "transformer/config.json")
    job = manifest(tmp_path, validation={"everySteps": 10, "prompts": [{"name": "boat", "prompt": "a boat"}]})
    said = plan(job, {"/output/photos": pictures, "/models/flux": bare})
    assert f"note          training.model.path: {bare} has a configuration and no weights" in said
    assert "no weights" not in plan(job, {"/output/photos": pictures, "/models/flux": tiny_flux})


def test_a_configuration_of_another_model_is_refused_and_so_is_half_a_model(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    here = {"/output/photos": pictures, "/models/flux": tmp_path / "model"}
    (tmp_path / "model/transformer").mkdir(parents=True)
    config = tmp_path / "model/transformer/config.json"
    config.write_text('{"_class_name": "SD3Transformer2DModel"}')
    assert "transformer is of the class SD3Transformer2DModel" in told(manifest(tmp_path), here)
    shutil.copyfile(tiny_flux / "transformer/config.json", config)
    config.with_name("a.safetensors").touch()
    assert "model_index.json is missing" in told(manifest(tmp_path), here)


def told(job: Path, here: dict[str, Path]) -> str:
    """What a plan that is refused says."""
    with pytest.raises(ConfigurationError) as raised:
        plan(job, here)
    return str(raised.value)


def test_all_that_a_job_names_wrongly_beside_its_data_is_told_at_once(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    job = manifest(
        tmp_path,
        method="LoRA",
        lora={"targets": ["attn.to_x"]},
        initFrom={"path": "/output/adapters"},
        validation={"everySteps": 10, "promptsFrom": {"path": "/output/prompts.json"}},
    )
    said = told(job, {"/output/photos": pictures, "/output": tmp_path, "/models/flux": tiny_flux})
    assert 'training.lora.targets: "attn.to_x" is the end of no linear layer' in said
    assert "attn.to_v or attn.to_q or attn.to_k may be meant" in said
    assert f"training.initFrom.path: {tmp_path}/adapters is no folder" in said
    assert f"training.validation.promptsFrom: {tmp_path} has no prompts.json" in said


def test_names_of_layers_and_prompts_are_checked_without_the_model(tmp_path: Path, pictures: Path) -> None:
    job = manifest(
        tmp_path,
        method="LoRA",
        lora={"targets": ["attn.to_x"]},
        validation={"everySteps": 10, "promptsFrom": {"path": "/output/prompts.json"}},
    )
    said = told(job, {"/output/photos": pictures})
    assert "training.lora.targets" in said
    assert "training.validation.promptsFrom" in said


def test_weights_to_start_with_are_of_the_kind_that_the_job_trains(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    here = {"/output/photos": pictures, "/start": tiny_flux, "/adapters": tmp_path}
    assert "has no pytorch_lora_weights.safetensors" in told(
        manifest(tmp_path, method="LoRA", initFrom={"path": "/start"}), here
    )
    assert "transformer is missing" in told(manifest(tmp_path, initFrom={"path": "/adapters"}), here)
    save_file({"lycoris_x.lokr_w1": np.zeros(1, np.float32)}, tmp_path / "pytorch_lora_weights.safetensors")
    assert "adapters of the algorithm LoKr, lora asks for LoRA" in told(
        manifest(tmp_path, method="LoRA", initFrom={"path": "/adapters"}), here
    )
    plan(manifest(tmp_path, method="LoRA", lora={"algorithm": "LoKr"}, initFrom={"path": "/adapters"}), here)
