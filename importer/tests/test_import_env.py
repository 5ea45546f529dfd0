"""config.env as a shell reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oarlock_import.env_file import NAMES, parse
from oarlock_import.importing import OPTIONS
from oarlock_import.shell import computed, logical_lines
from oarlock_import.simpletuner import VARIABLES
from oarlock_import.values import Computed, arguments
from oarlock_trainer.cli import main
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--hub_model_id=me/my-lora", {"hub_model_id": "me/my-lora"}),
        ("--hub-model-id=me/my-lora --learning-rate=1e-4", {"hub_model_id": "me/my-lora", "learning_rate": "1e-4"}),
        ("--base_model_precision int8-quanto --report-to", {"base_model_precision": "int8-quanto", "report_to": True}),
    ],
)
def test_dashes_are_underscores_in_names_alone(text: str, found: dict[str, object]) -> None:
    assert arguments(text) == found


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("A=1\n\nB=2  # two\n", [(1, "A=1"), (2, ""), (3, "B=2  "), (4, "")]),
        ('A="--x \\\n--y"\nB=2', [(1, 'A="--x --y"'), (3, "B=2")]),
        ('A="x\ny # z"\nB=2', [(1, 'A="x\ny # z"'), (3, "B=2")]),
        ("A=a#b \\# # c", [(1, "A=a#b \\# ")]),
        ("A='it\\\nB=2", [(1, "A='it\\\nB=2")]),
        ("A=1\r\nB=2", [(1, "A=1"), (2, "B=2")]),
    ],
)
def test_lines_are_a_shells(content: str, lines: list[tuple[int, str]]) -> None:
    assert list(logical_lines(content)) == lines


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$((A / 10))", "10"),
        ("x$(( (A + 7) % 10 * -2 ))y", "x-8y"),
        ("$((-7 / 2))", "-3"),
        ("$((A / 0))", "$((A / 0))"),
        ("$((UNKNOWN + 1))", "$((UNKNOWN + 1))"),
        ("$((2 ** 99))", "$((2 ** 99))"),
        ("$(date)", "$(date)"),
    ],
)
def test_sums_are_computed(text: str, result: str) -> None:
    used: set[str] = set()
    assert computed(text, {"A": "107" if "%" in text else "100"}, used) == result
    assert used <= {"A"}


def test_a_file_of_a_shell_is_read_with_its_long_lines_and_sums() -> None:
    text = "STEPS=1000\nMAX_NUM_STEPS=$STEPS\nLR_WARMUP_STEPS=$((STEPS / 10))\n"
    text += 'TRAINER_EXTRA_ARGS="--seed=3 \\\n --lr-end 0"\n'
    found, lines = parse(text, file="config.env", names=OPTIONS)
    assert (found["lr_warmup_steps"], found["seed"], found["lr_end"]) == ("100", "3", "0")
    assert lines["lr_end"] == 4
    odd, _ = parse("MAX_NUM_STEPS=$((ODD / 10))\n", file="config.env", names=OPTIONS)
    assert isinstance(odd["max_train_steps"], Computed)


def test_a_variable_that_simpletuner_does_not_read_is_taken_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.env").write_text("MODEL_FAMILY=flux\nMODEL_FLAVOUR=dev\nLEARNING_RATE=1e-4\n")
    main(["import-simpletuner", str(tmp_path / "config.env")])
    said = capsys.readouterr().err
    assert said.count("reads no such variable of config.env") == 1
    assert "model_flavour: dev -> training.model.flavor: Dev\n      differs: SimpleTuner 4.8.0 reads no such" in said


def test_the_variables_that_simpletuner_reads_are_known_by_its_names() -> None:
    others = {"USE_BITFIT"}  # which is a value of another option
    assert {name for name in VARIABLES - others if NAMES.get(name, name.lower()) not in OPTIONS} == set()


@pytest.mark.parametrize("word", ["if [ -n $A ]; then", "fi", "for x in 1 2; do", "source other.env"])
def test_what_only_a_shell_decides_is_refused_with_its_line(word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"config.env, line 2: .*no shell is run here"):
        parse(f"SEED=1\n{word}\n", file="config.env", names=OPTIONS)


@pytest.mark.parametrize("name", ["config.env", "train.sh"])
def test_a_script_is_read_as_config_env_is(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("export MODEL_FAMILY=flux\n")
    assert main(["import-simpletuner", str(tmp_path / name)]) == 85  # for what is missing
    assert "model_family: flux -> training.model.family: Flux1" in capsys.readouterr().err
