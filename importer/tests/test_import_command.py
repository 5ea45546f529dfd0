"""The command: files of each format, what they name beside them, its output and its exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from oarlock_api import manifest
from oarlock_api.trainingjob import TrainingJob
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(
    tmp_path: Path,
    full_rank: dict[str, Any],
    accelerate: dict[str, Any],
    r2: list[dict[str, Any]],
    hooks: list[dict[str, Any]],
) -> Path:
    """A config folder as SimpleTuner has it."""
    folder = tmp_path / "config"
    folder.mkdir()
    named = {"accelerate_config": "config/accelerate.yaml", "webhook_config": "config/webhooks.json"}
    (folder / "config.json").write_text(json.dumps(full_rank | named))
    (folder / "multidatabackend.json").write_text(json.dumps(r2))
    (folder / "accelerate.yaml").write_text(yaml.safe_dump(accelerate))
    (folder / "webhooks.json").write_text(json.dumps(hooks))
    return folder / "config.json"


def test_the_manifest_goes_to_standard_output_and_the_report_to_standard_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-simpletuner", str(config)]) == 0
    said = capsys.readouterr()
    job = TrainingJob.model_validate(manifest.load(said.out))
    assert (job.spec.nodes, job.spec.gpus_per_node, len(job.spec.webhooks)) == (4, 8, 2)
    assert "mapped (" in said.err
    assert "ignored, " in said.err
    assert "refused, the job would not do what it asks for (0)" in said.err


def test_no_secret_leaves_the_command(
    config: Path, secrets: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-simpletuner", str(config)]) == 0
    said = capsys.readouterr()
    assert [secret for secret in secrets if secret in said.out + said.err] == []


@pytest.mark.parametrize(
    "inline", [{"data_backend_config": "multidatabackend.json"}, {"webhook_config": "webhooks.json"}]
)
@pytest.mark.parametrize("end", ["", ",", "," + 255 * " "])
def test_no_secret_of_an_inline_configuration_is_shown_whatever_is_wrong_with_it(
    inline: dict[str, str], end: str, config: Path, secrets: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ((option, file),) = inline.items()
    options = {key.lstrip("-"): value for key, value in json.loads(config.read_text()).items()}
    config.write_text(json.dumps(options | {option: (config.parent / file).read_text() + end}))
    assert main(["import-simpletuner", str(config)]) == (85 if end else 0)
    told = capsys.readouterr()
    assert [line for line in told.err.splitlines() if f"{option} is no JSON" in line or f"{option}: inline" in line]
    assert [secret for secret in secrets if secret in told.out + told.err] == []


def test_the_manifest_goes_to_a_file(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "job.yaml"
    arguments = ["--name", "boats-2", "--claim", "nas", "-o", str(written)]
    assert main(["import-simpletuner", str(config), *arguments]) == 0
    assert capsys.readouterr().out == ""
    job = TrainingJob.model_validate(manifest.load(written.read_text()))
    assert job.metadata.name == "boats-2"
    assert job.spec.output.persistent_volume_claim
    assert job.spec.output.persistent_volume_claim.claim_name == "nas"


def test_what_is_refused_ends_with_85_and_without_a_manifest(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | {"unheard_of": 1}))
    written = tmp_path / "job.yaml"
    assert main(["import-simpletuner", str(config), "-o", str(written)]) == 85
    said = capsys.readouterr().err
    assert said.splitlines()[:2] == [
        "refused, the job would not do what it asks for (1)",
        "  config.json, line 1: unheard_of: not known; check the spelling, or remove it",
    ]
    assert said.splitlines()[-1].startswith("no job was written: remove or change what is refused")
    assert "next: " not in said
    assert not written.exists()


@pytest.mark.parametrize(
    ("key", "meant"),
    [("flux_schedule_shift", "flow_schedule_shift"), ("flux_schedule_auto_shift", "flow_schedule_auto_shift")],
)
def test_an_older_or_misspelled_option_is_refused_with_the_one_that_is_meant(
    config: Path, key: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: 3}))
    assert main(["import-simpletuner", str(config)]) == 85
    assert f"config.json, line 1: {key}: not known; did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["multidatabackend.json", "accelerate.yaml", "webhooks.json"])
def test_a_file_that_is_named_and_not_found_is_asked_for(
    missing: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / missing).rename(config.parent / "moved.tmp")
    assert main(["import-simpletuner", str(config)]) == 85
    assert "is not found here: pass" in capsys.readouterr().err


def test_files_may_be_passed_by_hand(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed = []
    for flag, name in (
        ("datasets", "multidatabackend.json"),
        ("accelerate", "accelerate.yaml"),
        ("webhooks", "webhooks.json"),
    ):
        (config.parent / name).rename(tmp_path / name)
        passed += [f"--{flag}", str(tmp_path / name)]
    assert main(["import-simpletuner", str(config), *passed]) == 0
    assert "s3Connections" in capsys.readouterr().out


def test_toml_and_env_say_the_same_as_json(
    config: Path, full_rank: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--accelerate", str(config.parent / "accelerate.yaml")]
    config.write_text(json.dumps(full_rank))
    assert main(["import-simpletuner", str(config), *files]) == 0
    expected = capsys.readouterr().out
    plain = {key.lstrip("-"): value for key, value in full_rank.items()}
    toml = config.with_suffix(".toml")
    toml.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items()))
    assert main(["import-simpletuner", str(toml), *files]) == 0
    assert capsys.readouterr().out == expected
    renamed = {
        "max_train_steps": "MAX_NUM_STEPS",
        "num_train_epochs": "NUM_EPOCHS",
        "data_backend_config": "DATALOADER_CONFIG",
        "pretrained_model_name_or_path": "MODEL_NAME",
        "lr_scheduler": "LR_SCHEDULE",
        "seed": "TRAINING_SEED",
        "gradient_checkpointing": "USE_GRADIENT_CHECKPOINTING",
    }
    extra = "export TRAINER_EXTRA_ARGS='--allow_dataset_oversubscription'\nTRAINER_EXTRA_ARGS+=' --report_to wandb'\n"
    lines = [
        f'export {renamed.get(key, key.upper())}="{value}"  # a remark\n'
        for key, value in plain.items()
        if key not in {"allow_dataset_oversubscription", "report_to"}
    ]
    env = config.with_suffix(".env")
    env.write_text("# variables\n\n" + "".join(lines) + extra + "export SIMPLETUNER_LOG_LEVEL=DEBUG\n")
    assert main(["import-simpletuner", str(env), *files]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("UNHEARD_OF=1", "UNHEARD_OF: not known"),
        ("OUTPUT_DIR=$BASE/boats", "environment that is not here"),
        ("this is no assignment", "line 2: this is no NAME=value"),
        ("OUTPUT_DIR='boats", "line 2: No closing quotation"),
        ("OUTPUT_DIR=$(pwd)/boats", "config.env, line 2: output_dir: a shell's command makes its value"),
        ('export OUTPUT_DIR="`pwd`/boats"', "config.env, line 2: output_dir: a shell's command makes its value"),
        ('TRAINER_EXTRA_ARGS="--name $(pwd)"', "line 2: TRAINER_EXTRA_ARGS: a shell's command makes its value"),
        ("BASE=$(pwd)\nOUTPUT_DIR=$BASE/boats", "config.env, line 3: output_dir: a shell's command makes its value"),
    ],
)
def test_lines_of_config_env_that_are_not_understood_are_told(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = tmp_path / "config.env"
    env.write_text(f"MODEL_FAMILY=flux\n{line}\n")
    assert main(["import-simpletuner", str(env)]) == 85
    assert said in capsys.readouterr().err


def test_what_a_shell_leaves_as_it_stands_and_what_is_ignored_is_not_refused_for_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = tmp_path / "config.env"
    env.write_text("VALIDATION_PROMPT='a `boat`, $(1)'\nHF_TOKEN=$(cat token)\nSEED=1  # not $(date)\n")
    assert main(["import-simpletuner", str(env)]) == 85  # for what is missing
    said = capsys.readouterr().err
    assert "a shell's command" not in said
    assert "hf_token: a secret" in said


def test_a_variable_that_only_other_lines_use_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "config.env"
    env.write_text("BASE_DIR=/data\nOUTPUT_DIR=${BASE_DIR}/boats\nOTHER_DIR=/x\n")
    assert main(["import-simpletuner", str(env)]) == 85  # for what is missing
    said = capsys.readouterr().err
    assert "  config.env: BASE_DIR: no option: its value is in the lines that name it" in said
    assert "line 1: BASE_DIR" not in said
    assert "line 3: OTHER_DIR: not known" in said


def test_secrets_in_config_env_are_ignored_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "config.env"
    env.write_text("HF_TOKEN=hunter2\nWANDB_API_KEY=hunter2\n")
    main(["import-simpletuner", str(env)])
    said = capsys.readouterr()
    assert "hf_token: a secret" in said.err
    assert "hunter2" not in said.out + said.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.json", "{", "Expecting property name"),
        ("config.json", "[]", "no object of options"),
        ("config.json", '{"seed": 1, "seed": 2}', "seed stands twice"),
        ("config.json", '{"seed": 1, "--seed": 2}', "seed stands twice"),
        ("config.toml", "seed = ", "Invalid value"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import-simpletuner", str(tmp_path / name)]) == 85
    error = capsys.readouterr().err
    assert f"{tmp_path / name}: " in error
    assert said in error


def test_text_that_looks_like_something_else_stays_text(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {"--validation_prompt": "1e5", "--tracker_run_name": "yes", "--tracker_project_name": "2026-01-01"}
    config.write_text(json.dumps(json.loads(config.read_text()) | odd))
    assert main(["import-simpletuner", str(config)]) == 0
    training = manifest.load(capsys.readouterr().out)["spec"]["training"]
    assert training["validation"]["prompts"][0]["prompt"] == "1e5"
    assert (training["tracking"][0]["run"], training["tracking"][0]["project"]) == ("yes", "2026-01-01")


def test_help_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["import-simpletuner", "--help"])
    assert left.value.code == 0
    assert "multidatabackend.json" in capsys.readouterr().out


def test_help_of_the_trainer_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert "import-simpletuner" in capsys.readouterr().out
