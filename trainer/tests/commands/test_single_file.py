"""`oarlock-trainer import-single-file`: a model of one file is the same model in a folder, or there is none."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from original_names import FLUX1, FLUX2, WAN, Z_IMAGE, sd3
from tiny_models import made_tiny

from oarlock_local import patience
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.cli import main
from oarlock_trainer.models import folder
from oarlock_trainer.models.families import FAMILIES, family_in
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import (  # noqa: E402 - before ours: a rank imports less of diffusers
    Flux2Transformer2DModel,
    SD3Transformer2DModel,
    WanTransformer3DModel,
    ZImageTransformer2DModel,
)
from safetensors.torch import load_file, save_file  # noqa: E402 - brings torch

from oarlock_trainer.models import transformer  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from original_names import Original
    from torch import Tensor

COMFY = "model.diffusion_model."
ORIGINALS = {"wan": WAN, "flux2": FLUX2, "z-image": Z_IMAGE, "sd3": sd3(3)}
CLASSES = {
    "wan": WanTransformer3DModel,
    "flux2": Flux2Transformer2DModel,
    "z-image": ZImageTransformer2DModel,
    "sd3": SD3Transformer2DModel,
}
ALL = [family.slug for family in FAMILIES.values()]


def weights_in(model: Path) -> dict[str, Tensor]:
    return {name: one for path in model.glob("transformer/*.safetensors") for name, one in load_file(path).items()}


def without_weights(model: Path, copy: Path) -> Path:
    """A base that can give nothing to the transformer."""
    shutil.copytree(model, copy, ignore=shutil.ignore_patterns("transformer"))
    (copy / "transformer").mkdir()
    shutil.copyfile(model / "transformer/config.json", copy / "transformer/config.json")
    return copy


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit by bit, in the same types."""
    return one.keys() == other.keys() and all(
        one[name].dtype is other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def in_diffusers(model: Path, kind: Any) -> dict[str, Tensor]:
    state: dict[str, Tensor] = kind.from_pretrained(model / "transformer", dtype=torch.bfloat16).state_dict()
    return state


def importing(file: Path, base: Path, output: Path) -> int:
    return main(["import-single-file", str(file), "--base", str(base), "--output", str(output)])


class Case:
    """A tiny model, a base without its transformer's weights, and files of them."""

    def __init__(self, model: Path, place: Path) -> None:
        self.model, self.place = model, place
        self.weights = weights_in(model)
        self.base = without_weights(model, place / "base")
        self.output = place / "models" / "tuned"

    def file(self, weights: dict[str, Tensor], name: str = "tuned.safetensors") -> Path:
        save_file(weights, self.place / name)
        return self.place / name

    def run(self, weights: dict[str, Tensor]) -> int:
        return importing(self.file(weights), self.base, self.output)


@pytest.fixture
def case(tiny_flux2: Path, tmp_path: Path) -> Case:
    return Case(tiny_flux2, tmp_path)


@pytest.mark.parametrize("prefix", ["", COMFY])
@pytest.mark.parametrize("slug", quick_first(ORIGINALS))
def test_a_file_with_its_makers_names_is_the_same_model_in_a_folder(slug: str, prefix: str, tmp_path: Path) -> None:
    case = Case(made_tiny(slug), tmp_path)
    original = ORIGINALS[slug].of(case.weights, prefix)
    assert original.keys() & case.weights.keys() != case.weights.keys()
    assert case.run(original) == 0
    assert equal(weights_in(case.output), case.weights)
    assert equal(in_diffusers(case.output, CLASSES[slug]), in_diffusers(case.model, CLASSES[slug]))
    assert equal(transformer.load(case.output).state_dict(), transformer.load(case.model).state_dict())


@pytest.mark.parametrize("slug", quick_first(ORIGINALS))
def test_diffusers_itself_makes_the_same_of_such_a_file(slug: str, tmp_path: Path) -> None:
    case = Case(made_tiny(slug), tmp_path)
    file = case.file(ORIGINALS[slug].of(case.weights))
    assert importing(file, case.base, case.output) == 0
    theirs = CLASSES[slug].from_single_file(
        str(file), config=str(case.base), subfolder="transformer", dtype=torch.bfloat16, local_files_only=True
    )
    assert equal(theirs.to(torch.bfloat16).state_dict(), transformer.load(case.output).state_dict())


@pytest.mark.parametrize("prefix", ["", COMFY])
@pytest.mark.parametrize("slug", quick_first(ALL))
def test_a_file_with_diffusers_names_is_taken_as_it_is(slug: str, prefix: str, tmp_path: Path) -> None:
    case = Case(made_tiny(slug), tmp_path)
    assert case.run({prefix + name: one for name, one in case.weights.items()}) == 0
    assert equal(weights_in(case.output), case.weights)
    folder.check(case.output, family_in(case.output), field="model")


@pytest.mark.deep
def test_a_file_of_the_real_width_is_the_same_model(tiny_flux: Path, tmp_path: Path) -> None:
    case = Case(tiny_flux, tmp_path)
    config = case.base / "transformer/config.json"
    wide = {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 24, "attention_head_dim": 128}
    config.write_text(json.dumps(json.loads(config.read_text()) | wide))
    numbers = torch.arange(2**27).to(torch.int16)
    weights = {
        name: numbers[number : number + one.numel()].clone().view(torch.bfloat16).view(one.shape)
        for number, (name, one) in enumerate(transformer.empty(case.base).state_dict().items())
    }
    assert case.run(FLUX1.of(weights, COMFY)) == 0
    found = weights_in(case.output)
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name].view(torch.int16), one.view(torch.int16)) for name, one in weights.items())
    shutil.rmtree(tmp_path)  # 2 GB, which pytest would keep


def test_all_but_the_transformer_is_the_base_s(case: Case) -> None:
    (case.base / "flux-2-klein.safetensors").write_bytes(b"a second copy")
    assert case.run(case.weights) == 0
    names = {path.relative_to(case.base).as_posix() for path in case.base.rglob("*") if path.is_file()}
    found = {path.relative_to(case.output).as_posix() for path in case.output.rglob("*") if path.is_file()}
    assert found == names - {"flux-2-klein.safetensors"} | {"transformer/diffusion_pytorch_model.safetensors"}
    for name in found & names:
        assert (case.output / name).read_bytes() == (case.base / name).read_bytes()
    assert (case.output / "vae/diffusion_pytorch_model.safetensors").samefile(
        case.base / "vae/diffusion_pytorch_model.safetensors"
    )


def test_links_of_a_hub_s_cache_become_files(case: Case) -> None:
    own, blob = case.base / "vae/diffusion_pytorch_model.safetensors", case.place / "blob"
    own.rename(blob)
    own.symlink_to(blob)
    assert case.run(case.weights) == 0
    taken = case.output / "vae/diffusion_pytorch_model.safetensors"
    assert not taken.is_symlink()
    assert taken.samefile(blob)


def test_what_cannot_be_linked_is_copied(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    assert case.run(case.weights) == 0
    copied, own = (one / "vae/diffusion_pytorch_model.safetensors" for one in (case.output, case.base))
    assert not copied.samefile(own)
    assert copied.read_bytes() == own.read_bytes()


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_weights_keep_the_type_that_they_have_in_the_file(case: Case, kind: torch.dtype) -> None:
    weights = {name: one.to(kind) for name, one in case.weights.items()}
    assert case.run(FLUX2.of(weights, COMFY)) == 0
    assert equal(weights_in(case.output), weights)


def test_float8_becomes_bfloat16_and_that_is_said(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = {name: one.to(torch.float8_e4m3fn) for name, one in FLUX2.of(case.weights, COMFY).items()}
    assert case.run(narrow) == 0
    wide = {name: one.to(torch.float8_e4m3fn).to(torch.bfloat16) for name, one in case.weights.items()}
    assert equal(weights_in(case.output), wide)
    assert "weights that are float8 in the file are bfloat16 now" in capsys.readouterr().out


def test_of_a_whole_checkpoint_the_transformer_is_taken_and_that_is_said(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {name: torch.zeros(2) for name in ("vae.decoder.conv_in.weight", "text_encoders.t5.shared.weight")}
    assert case.run(FLUX2.of(case.weights, COMFY) | more) == 0
    assert equal(weights_in(case.output), case.weights)
    assert "the file also holds text_encoders, vae: left out" in capsys.readouterr().out


def test_many_weights_come_in_several_files_with_an_index(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oarlock_trainer.checkpoint.weight_files._LARGEST_FILE", 30_000)
    assert case.run(case.weights) == 0
    assert len(list(case.output.glob("transformer/*.safetensors"))) > 2
    folder.check(case.output, family_in(case.output), field="model")
    assert equal(in_diffusers(case.output, Flux2Transformer2DModel), in_diffusers(case.model, Flux2Transformer2DModel))


def test_who_waits_is_told_how_much_is_written(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("oarlock_trainer.commands.single_file.meanwhile", lambda: nullcontext(said.append))
    monkeypatch.setattr("oarlock_trainer.checkpoint.weight_files._LARGEST_FILE", 30_000)
    assert case.run(case.weights) == 0
    written = [line for line in said if line.startswith("writing ")]
    assert len(written) == len(list(case.output.glob("transformer/*.safetensors")))
    assert all(line.endswith(" GB") for line in written)


TEXT_IN = "txt_in.weight"


def _without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda weights: {key: one for key, one in weights.items() if key != name}


@pytest.mark.parametrize(
    ("original", "change", "said"),
    [
        (FLUX2, _without(TEXT_IN), ["1 are missing (context_embedder.weight)"]),
        (None, _without("context_embedder.weight"), ["1 are missing (context_embedder.weight)"]),
        (FLUX2, lambda found: found | {TEXT_IN: torch.zeros(3, 5)}, ["(context_embedder.weight: 3 x 5 instead of "]),
        (FLUX2, lambda found: found | {"double_blocks.9.img_mlp.0.weight": torch.zeros(2)}, ["1 are none of its weights"]),
        (FLUX2, lambda found: found | {"double_blocks.0.img_mlp.7.weight": torch.zeros(2)}, ["img_mlp.7"]),
        (WAN, lambda found: found, ["are missing", "are none of its weights"]),
        (FLUX2, lambda _: {}, ["are missing"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_base_is_named_and_nothing_is_written(
    case: Case,
    capsys: pytest.CaptureFixture[str],
    original: Original | None,
    change: Callable[[Any], dict[str, Tensor]],
    said: list[str],
) -> None:
    assert case.run(change(original.of(case.weights) if original else case.weights)) == 85
    words = capsys.readouterr().err
    assert f"does not fit {case.base}, whose transformer is FLUX.2's Flux2Transformer2DModel" in words
    assert [one for one in said if one not in words] == []
    assert "Name the model that it was made from as the base" in words
    assert not case.output.parent.exists()


def test_names_from_a_file_neither_fill_a_terminal_nor_command_it(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        case.run(
            case.weights | {"\x1b[2J" + 5000 * "x": torch.zeros(2), "double_blocks.0.x.qkv.weight": torch.zeros(2)}
        )
        == 85
    )
    said = capsys.readouterr().err
    assert "\\x1b[2Jxxx" in said
    assert "\x1b" not in said
    assert len(said) < 2000


@pytest.mark.deep
def test_what_diffusers_knows_to_be_of_no_use_is_left_out(tmp_path: Path) -> None:
    case = Case(made_tiny("z-image"), tmp_path)
    assert case.run(Z_IMAGE.of(case.weights) | {"norm_final.weight": torch.zeros(2)}) == 0
    assert equal(weights_in(case.output), case.weights)


def test_a_weight_that_is_missing_is_named_where_diffusers_would_stumble(
    tiny_sd3: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(tiny_sd3, tmp_path)
    assert case.run(_without("joint_blocks.1.x_block.mlp.fc1.bias")(sd3(3).of(case.weights))) == 85
    assert "KeyError('joint_blocks.1.x_block.mlp.fc1.bias')" in capsys.readouterr().err


@pytest.mark.deep
def test_what_diffusers_leaves_over_is_not_forgotten(
    tiny_sd3: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(tiny_sd3, tmp_path)
    assert case.run(sd3(3).of(case.weights) | {"joint_blocks.0.x_block.gate": torch.zeros(2)}) == 85
    assert "1 are none of its weights (joint_blocks.0.x_block.gate)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_A.weight",
        "diffusion_model.double_blocks.0.img_attn.qkv.lora_down.weight",
        "lora_unet_double_blocks_0_img_attn_qkv.alpha",
        "lycoris_transformer_blocks_0_attn_to_q.lokr_w1",
    ],
)
def test_adapters_are_told_where_they_belong(case: Case, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert case.run({name: torch.zeros(2, 2)}) == 85
    said = capsys.readouterr().err
    assert f"it holds adapters ({name.removeprefix('diffusion_model.')}), and no model" in said
    assert "training.initFrom" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scaled_fp8": torch.zeros(2)}, "its weights are quantized, with scales beside them (scaled_fp8)"),
        ({"img_in.scale_weight": torch.zeros(1)}, "with scales beside them (img_in.scale_weight)"),
        ({"img_in.weight": torch.zeros(2, dtype=torch.uint8)}, "it has tensors of the type U8"),
    ],
)
def test_quantized_weights_are_refused(
    case: Case, capsys: pytest.CaptureFixture[str], more: dict[str, Tensor], said: str
) -> None:
    assert case.run(FLUX2.of(case.weights) | more) == 85
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tuned.ckpt", "tuned.pt", "tuned.gguf"])
def test_no_other_file_is_opened(case: Case, capsys: pytest.CaptureFixture[str], name: str) -> None:
    torch.save({"img_in.weight": torch.zeros(2)}, case.place / name)
    assert importing(case.place / name, case.base, case.output) == 85
    assert "a pickle (.ckpt, .pt, .pth, .bin) runs whatever program somebody put into it" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 pickle", (2**62).to_bytes(8, "little") + b"{}", None])
def test_a_file_that_is_none_is_refused(case: Case, capsys: pytest.CaptureFixture[str], content: bytes | None) -> None:
    file = case.file(case.weights)
    file.write_bytes(file.read_bytes()[:-1] if content is None else content)
    assert importing(file, case.base, case.output) == 85
    assert f"{file} is damaged, or no .safetensors file" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert importing(case.place / "none.safetensors", case.base, case.output) == 85
    assert "none.safetensors is no file here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("vae", "vae is missing"),
        ("model_index.json", "model_index.json is missing"),
        ("transformer", "config.json is not"),
    ],
)
def test_a_base_that_is_not_whole_is_refused(
    case: Case, capsys: pytest.CaptureFixture[str], lost: str, said: str
) -> None:
    file = case.file(case.weights)
    (case.base / lost).rename(case.place / "lost")
    assert importing(file, case.base, case.output) == 85
    assert f"--base: {case.base}" in (words := capsys.readouterr().err)
    assert said in words


def test_what_is_there_is_not_overwritten(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.output.mkdir(parents=True)
    (case.output / "mine").touch()
    assert case.run(case.weights) == 85
    assert f"--output: {case.output} is there already" in capsys.readouterr().err
    assert [path.name for path in case.output.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled(case: Case) -> None:
    case.output.mkdir(parents=True)
    assert case.run(case.weights) == 0
    assert equal(weights_in(case.output), case.weights)


def test_a_disk_that_fails_leaves_nothing(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    file = case.place / "tuned.safetensors"
    file.write_bytes((case.model / "transformer/diffusion_pytorch_model.safetensors").read_bytes())
    assert importing(file, case.base, case.output) == 84
    assert f"writing {case.output}: [Errno 28]" in capsys.readouterr().err
    assert list(case.output.parent.iterdir()) == []


KILLED = """
import os, signal, sys
from oarlock_local import patience
from oarlock_trainer.cli import main
from oarlock_trainer.checkpoint import weight_files

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

weight_files.write_index = die
main(sys.argv[1:])
"""


@pytest.mark.deep
def test_what_a_kill_leaves_is_no_model_and_blocks_nobody(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    file = case.file(case.weights)
    arguments = ["import-single-file", str(file), "--base", str(case.base), "--output", str(case.output)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=patience.SECONDS)
    assert killed.returncode == -signal.SIGKILL
    (left,) = case.output.parent.iterdir()
    assert left.name.startswith(".tmp-tuned-")
    assert weights_in(left)
    with pytest.raises(ConfigurationError, match=r"model_index\.json is missing"):
        folder.check(left, family_in(left), field="model")
    assert importing(file, case.base, case.output) == 0
    assert f"{left} is there" in capsys.readouterr().err
    assert equal(weights_in(case.output), case.weights)
