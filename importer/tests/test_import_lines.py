"""A refusal names the line of the file that has to be changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from pathlib import Path

JSON = """{
\t"--model_family": "flux",
  "--model_type": "full",
  "--train_batch_size": "many",
  "--max_train_steps": 10,
  "--num_train_epochs": 0,
  "--accelerate_config": "accelerate.yaml",
  "--webhook_config": "webhooks.json",
  "--data_backend_config": "multidatabackend.json"
}
"""
FILES = {
    "config.json": JSON,
    "config.toml": JSON.strip("{}\n").replace('"--', "").replace('":', " =").replace(",\n", "\n"),
    "config.env": """# a remark
export FLUX=true
MODEL_TYPE=full
TRAIN_BATCH_SIZE=many
MAX_NUM_STEPS=10
export TRAINER_EXTRA_ARGS="--lr_scale"
NUM_EPOCHS=0
ACCELERATE_CONFIG_PATH=accelerate.yaml
WEBHOOK_CONFIG=webhooks.json
DATALOADER_CONFIG=multidatabackend.json
""",
    "accelerate.yaml": """# a remark
num_machines: 2
num_processes: 3
deepspeed_config:
  offload_param_device: cpu
  zero_stage: 0
dynamo_config: {dynamo_backend: TENSORRT}
""",
    "multidatabackend.json": """[
  {"id": "boats", "instance_data_dir": "/output/boats", "metadata_backend": "parquet",
   "parquet": {
     "path": "boats.parquet",
     "height_column": "h"
   },
   "end_epoch": 3},
  {"id": "ships",
   "type": "local"}
]
""",
    "webhooks.json": """{
  "webhook_type": "raw",
  "callback_url": "https://example.com",
  "ssl_no_verify": true
}
""",
}
BESIDE = (
    "accelerate.yaml, line 3: num_processes: 3 processes cannot be spread evenly over 2 machines",
    "accelerate.yaml[deepspeed_config], line 5: offload_param_device: weights stay on the GPUs",
    "accelerate.yaml[deepspeed_config], line 6: zero_stage: stages are 1, 2 and 3",
    "accelerate.yaml[dynamo_config], line 7: dynamo_backend: tensorrt is not here",
    "multidatabackend.json[boats], line 7: end_epoch: windows are said in steps",
    "multidatabackend.json[boats][parquet], line 3: width_column: is missing",
    "multidatabackend.json[ships], line 8: instance_data_dir: is missing",
    "webhooks.json[1], line 4: ssl_no_verify: certificates are verified",
)
MANY = "is no number: write one such as 8"


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ("config.json", (f"config.json, line 4: train_batch_size: {MANY}",)),
        ("config.toml", (f"config.toml, line 3: train_batch_size: {MANY}",)),
        (
            "config.env",
            (f"config.env, line 4: train_batch_size: {MANY}", "config.env, line 6: lr_scale: multiply learning_rate"),
        ),
    ],
)
def test_a_refusal_names_its_file_and_its_line(
    config: str, own: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert main(["import-simpletuner", str(tmp_path / config)]) == 85
    said = capsys.readouterr().err
    assert [line for line in (*BESIDE, *own) if f"  {line}" not in said] == [], said


def test_what_only_the_trainer_refuses_names_its_line_as_well(
    tmp_path: Path, simple: dict[str, Any], folder: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    options = simple | {"optimizer": "adamw_bf16", "optimizer_config": "eps=-1", "data_backend_config": "data.json"}
    (tmp_path / "config.json").write_text(json.dumps(options, indent=1))
    (tmp_path / "data.json").write_text(json.dumps([folder]))
    assert main(["import-simpletuner", str(tmp_path / "config.json")]) == 85
    line = 1 + list(options).index("optimizer_config") + 1
    assert f"  config.json, line {line}: optimizer_config: the trainer cannot do" in capsys.readouterr().err


def test_a_file_whose_lines_cannot_be_told_is_refused_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 2000  # no key of YAML
    (tmp_path / "config.json").write_text(f'{{"{long}": 1, "unheard_of": 2}}')
    assert main(["import-simpletuner", str(tmp_path / "config.json")]) == 85
    assert "config.json: unheard_of: not known" in capsys.readouterr().err


def test_references_within_a_yaml_file_do_not_multiply_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    (tmp_path / "config.json").write_text('{"accelerate_config": "accelerate.yaml"}')
    (tmp_path / "accelerate.yaml").write_text(f"a0: &a0 [{{b: 1}}]\n{levels}use_cpu: perhaps\n")
    assert main(["import-simpletuner", str(tmp_path / "config.json")]) == 85
    assert "accelerate.yaml, line 13: use_cpu: is neither true nor false" in capsys.readouterr().err
