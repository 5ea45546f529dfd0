"""`oarlock-trainer checkpoints`: people see what there is, whether it is whole, and get the model out of it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from safetensors.torch import load_file
from saving import Plain, save_alone, saver
from saving import save as save_one

from oarlock_trainer.checkpoint.writer import Writer
from oarlock_trainer.cli import main
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.adapters.targets import Adapters

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    save_alone(tmp_path, 10, 20)
    save_alone(tmp_path, 30, attempt=2)
    return tmp_path


def test_all_are_listed_newest_first_and_why_one_is_not_valid(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = output / "checkpoints/step-20-a1/rank-00000.state"
    shard.write_bytes(shard.read_bytes()[:-4])
    (output / "checkpoints/step-30-a2/COMMITTED").unlink()
    assert main(["checkpoints", "ls", str(output)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["STEP", "ATTEMPT", "AGE", "SIZE", "RANKS", "STATE"]
    assert [row.split()[:2] for row in rows] == [["30", "2"], ["20", "1"], ["10", "1"]]
    assert rows[0].endswith("not valid: COMMITTED is missing")
    assert "not valid: rank-00000.state has 564 bytes, not 568" in rows[1]
    assert rows[2].endswith("1      valid")


def test_the_list_is_there_as_json(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "ls", str(output / "checkpoints"), "--json"]) == 0
    newest, *_ = json.loads(capsys.readouterr().out)
    assert newest.pop("saved_at").endswith("Z")
    assert newest == {
        "name": "step-30-a2", "step": 30, "attempt": 2, "valid": True, "wrong": "", "bytes": 568, "ranks": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (b"{}", "it cannot be read: 'version'"),
        (b'{"version": 1}', "it cannot be read: a manifest of another version"),
        (None, "manifest.json is not the one that COMMITTED was written for"),
    ],
)
def test_a_manifest_that_is_none_has_its_words(
    output: Path, capsys: pytest.CaptureFixture[str], manifest: bytes | None, said: str
) -> None:
    folder = output / "checkpoints/step-30-a2"
    (folder / "manifest.json").write_bytes(manifest or b"{}")
    if manifest:
        (folder / "COMMITTED").write_text(hashlib.sha256(manifest).hexdigest())
    assert main(["checkpoints", "ls", str(output)]) == 0
    assert said in capsys.readouterr().out.splitlines()[1]


def test_a_checkpoint_under_another_s_name_is_none(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (output / "checkpoints/step-30-a2").rename(output / "checkpoints/step-31-a2")
    assert main(["checkpoints", "ls", str(output)]) == 0
    assert "it holds step 30 of attempt 2" in capsys.readouterr().out


def test_a_flipped_bit_is_found_by_verify_alone_and_named(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "verify", str(output)]) == 0
    assert "step-30-a2 is whole: 1 files" in capsys.readouterr().out
    shard = output / "checkpoints/step-20-a1/rank-00000.state"
    body = shard.read_bytes()
    shard.write_bytes(body[:100] + bytes([body[100] ^ 1]) + body[101:])
    assert main(["checkpoints", "verify", str(output), "20"]) == 1
    assert f"{shard} is damaged" in capsys.readouterr().out
    assert main(["checkpoints", "verify", str(output), "10"]) == 0


def test_what_is_not_there_is_a_mistake_of_the_command_and_says_why(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (output / "checkpoints/step-30-a2/COMMITTED").unlink()
    assert main(["checkpoints", "verify", str(output), "30"]) == 85
    assert "no valid checkpoint of step 30; step-30-a2: COMMITTED is missing" in capsys.readouterr().err
    assert main(["checkpoints", "ls", str(output / "nowhere")]) == 85
    assert main(["checkpoints", "export", str(output), "--to", str(output)]) == 85
    assert "is there already" in capsys.readouterr().err
    assert main(["checkpoints", "export", str(output), "--to", str(output / "new")]) == 85
    assert "--model: say which model was trained" in capsys.readouterr().err
    assert not (output / "new").exists()


def test_adapters_are_exported_from_a_checkpoint_alone(tmp_path: Path) -> None:
    engine = Plain(sizes=(8, 12))
    parts = [
        part.__class__(name=f"block.{name}.default.weight", slot=part.slot, start=part.start, values=part.values)
        for part, name in zip(engine._parts, ("lora_A", "lora_A", "lora_B", "lora_B"), strict=True)
    ]
    engine._parts = parts
    with saver(tmp_path / "job", engine=engine) as plain:
        fence, ranks = plain._fence, plain._ranks
        writer = Writer(
            tmp_path / "job",
            fence,
            ranks,
            engine,
            keep=5,
            adapters=Adapters(
                4, 8.0, shapes={"block.lora_A.default.weight": (4, 2), "block.lora_B.default.weight": (3, 4)}
            ),
        )  # type: ignore[arg-type]
        save_one(writer, 10)
        writer.close()
    assert main(["checkpoints", "export", str(tmp_path / "job"), "--to", str(tmp_path / "new")]) == 0
    saved = load_file(tmp_path / "new" / lora.FILE)
    assert {name: tuple(value.shape) for name, value in saved.items()} == {
        "transformer.block.lora_A.weight": (4, 2),
        "transformer.block.lora_B.weight": (3, 4),
    }
    assert saved["transformer.block.lora_A.weight"].flatten().tolist() == parts[0].values.tolist()
