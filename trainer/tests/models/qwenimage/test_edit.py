"""Qwen-Image-Edit: a reference behind the picture's tokens and before the caption's, as diffusers' pipeline has it."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit  # noqa: E402 - before ours
from flux_pair import distance  # noqa: E402
from qwenimage_edit import load  # noqa: E402
from qwenimage_pair import pair  # noqa: E402
from transformers import Qwen2VLImageProcessorPil  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_api.training import Training  # noqa: E402
from oarlock_api.weights import Model, ModelFamily, ModelFlavor  # noqa: E402
from oarlock_trainer.models import folder, transformer  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.encoders import PictureEncoder  # noqa: E402
from oarlock_trainer.models.families import family_in, family_of, sight_of  # noqa: E402
from oarlock_trainer.models.family import Reference  # noqa: E402
from oarlock_trainer.models.qwenimage import seen_captions, sight, tiny  # noqa: E402
from oarlock_trainer.models.qwenimage.code import CODE  # noqa: E402
from oarlock_trainer.models.qwenimage.encoded import EDIT_DROPPED  # noqa: E402
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE  # noqa: E402
from oarlock_trainer.models.qwenimage.positions import Positions  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, step_on_zeros  # noqa: E402
from oarlock_trainer.plan.work import work_of  # noqa: E402
from oarlock_trainer.runtime.errors import ConfigurationError  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

CPU = torch.device("cpu")
EDIT = Model(family=ModelFamily.QWEN_IMAGE, flavor=ModelFlavor.EDIT, path="/model")
FAMILY = family_of(EDIT)
SIGHT = sight_of(EDIT)
CAPTIONS = ["make it day", "the surface of the moon with craters and long shadows", ""]


def drawn(width: int, height: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def pipeline(tiny_qwen_image_edit: Path) -> Any:
    return load(tiny_qwen_image_edit)


@pytest.fixture(scope="module")
def encoder(tiny_qwen_image_edit: Path) -> seen_captions.SeeingEncoder:
    return seen_captions.SeeingEncoder(tiny_qwen_image_edit, ModelFlavor.EDIT, CPU)


def text_of(pipeline: Any, caption: str, picture: np.ndarray) -> Tensor:
    """(T, t), as the pipeline makes it."""
    with torch.inference_mode():
        found, _ = pipeline.encode_prompt([caption], image=Image.fromarray(picture))
    return found[0].clone()


@pytest.mark.parametrize("bounds", [sight.Bounds(), sight.Bounds(784, 20_000)], ids=["published", "tight"])
@pytest.mark.parametrize("size", [(1024, 1024), (1248, 832), (333, 40), (20, 30)])
def test_a_picture_becomes_the_patches_that_the_published_processor_makes(
    size: tuple[int, int], bounds: sight.Bounds
) -> None:
    picture = drawn(*size)
    found, grid = sight.patches(picture, bounds)
    theirs = Qwen2VLImageProcessorPil(min_pixels=bounds.least, max_pixels=bounds.most)
    wanted = theirs([Image.fromarray(picture)], return_tensors="np")
    assert wanted.image_grid_thw.tolist() == [[1, *grid]]
    np.testing.assert_allclose(found, wanted.pixel_values, rtol=1e-5, atol=1e-5)
    assert sight.tokens(grid) == len(found) // 4


def test_bounds_are_read_from_either_file_of_a_processor(tmp_path: Path) -> None:
    assert sight.read_bounds(tmp_path) == sight.Bounds()
    folder = tmp_path / sight.PROCESSOR
    Qwen2VLImageProcessorPil(min_pixels=784, max_pixels=7840).save_pretrained(folder)
    assert sight.read_bounds(tmp_path) == sight.Bounds(784, 7840)
    (folder / "processor_config.json").write_text(
        f'{{"image_processor": {(folder / "preprocessor_config.json").read_text()}}}'
    )
    (folder / "preprocessor_config.json").unlink()
    assert sight.read_bounds(tmp_path) == sight.Bounds(784, 7840)


@pytest.mark.parametrize("size", [(1024, 1024), (64, 96), (960, 320), (1000, 999)])
def test_a_reference_is_seen_at_the_size_that_the_pipeline_calculates(size: tuple[int, int]) -> None:
    width, height, _ = pipeline_qwenimage_edit.calculate_dimensions(1024 * 1024, size[0] / size[1])
    assert SIGHT is not None
    assert SIGHT.size(*size) == (width, height)


def test_as_many_tokens_stand_before_what_is_kept_as_are_dropped(pipeline: Any) -> None:
    assert pipeline.prompt_template_encode.partition("<|vision_start|>")[0] == seen_captions.BEFORE
    assert len(pipeline.tokenizer(seen_captions.BEFORE).input_ids) == EDIT_DROPPED
    assert pipeline.prompt_template_encode_start_idx == EDIT_DROPPED


def test_captions_are_encoded_behind_their_references_as_the_pipeline_does_it(
    pipeline: Any, encoder: seen_captions.SeeingEncoder, tiny_qwen_image_edit: Path
) -> None:
    pictures = [drawn(128, 128), drawn(192, 128, 1), drawn(96, 224, 2)]
    sequences, pooled, lengths = encoder.encode(CAPTIONS, pictures)
    assert (sequences.dtype, pooled.shape, len(sequences)) == (torch.bfloat16, (3, 0), 3)
    for sequence, length, caption, picture in zip(sequences, lengths, CAPTIONS, pictures, strict=True):
        wanted = text_of(pipeline, caption, picture)
        assert length == len(wanted)
        torch.testing.assert_close(sequence[:length].float(), wanted, rtol=2**-7, atol=1e-4)
        assert not sequence[length:].any()
    found = FAMILY.read_encoded(tiny_qwen_image_edit, ModelFlavor.EDIT)
    assert (found.tokens, found.width) == (tiny.TEXT_TOKENS + tiny.SEEN + 2, tiny.TEXT_WIDTH)
    assert max(lengths) <= found.tokens


def test_the_same_caption_behind_another_picture_is_another_text(encoder: seen_captions.SeeingEncoder) -> None:
    (one, other), _, lengths = encoder.encode(["make it day"] * 2, [drawn(128, 128), drawn(128, 128, 1)])
    assert lengths[0] == lengths[1]
    assert distance(one.float(), other.float()) > 0.01


def test_marks_of_pictures_in_a_caption_stand_for_none(encoder: seen_captions.SeeingEncoder) -> None:
    picture = drawn(128, 128)
    with_marks, without = "a <|image_pad|><|vision_start|> boat<|video_pad|>", "a    boat "
    found, _, _ = encoder.encode([with_marks], [picture])
    wanted, _, _ = encoder.encode([without], [picture])
    assert torch.equal(found, wanted)


def test_a_picture_has_rows_and_columns_for_the_language_model(
    pipeline: Any, encoder: seen_captions.SeeingEncoder
) -> None:
    """Without what tells its tokens from words it would be a line: another text."""
    picture = drawn(128, 128)
    (told,), _, (length,) = encoder.encode(["make it day"], [picture])
    ids = pipeline.processor(
        text=[pipeline.prompt_template_encode.format("make it day")], images=[Image.fromarray(picture)], padding=True,
        return_tensors="pt",
    )  # fmt: skip
    with torch.inference_mode():
        line = pipeline.text_encoder.model(**ids, use_cache=False).last_hidden_state[0, EDIT_DROPPED:]
    assert len(line) == length
    assert distance(told.float(), line) > 0.01


def test_a_caption_is_cut_behind_its_picture(encoder: seen_captions.SeeingEncoder) -> None:
    picture = drawn(128, 128)
    _, _, lengths = encoder.encode(["a cat " * 200, ""], [picture, picture])
    (*_, grid) = sight.patches(picture, encoder._bounds)
    assert lengths[0] == tiny.TEXT_TOKENS + sight.tokens(grid) + 2 > lengths[1]


def test_a_reference_is_the_mean_of_what_the_vae_says(pipeline: Any, tiny_qwen_image_edit: Path) -> None:
    pixels = np.stack([drawn(48, 32), drawn(48, 32, 1)])
    found = PictureEncoder(tiny_qwen_image_edit, FAMILY, CPU, code=CODE).encode_reference(pixels)
    given = torch.from_numpy(pixels).permute(0, 3, 1, 2).unsqueeze(2) / 127.5 - 1
    with torch.no_grad():
        wanted = pipeline._encode_vae_image(given, torch.Generator()).squeeze(2)
    assert torch.allclose(found.float(), wanted, rtol=2**-7, atol=1e-4)


@pytest.mark.parametrize("pictures", [[(1, 4, 6), (1, 4, 6)], [(1, 5, 3), (1, 2, 9)]], ids=["same size", "another"])
def test_positions_of_two_pictures_are_diffusers_own(pictures: list[tuple[int, int, int]]) -> None:
    embedding = pair()[0].pos_embed
    image, words = embedding([pictures] * 2, device=CPU, max_txt_seq_len=7)
    found = Positions(embedding.axes_dim, embedding.theta)([pictures] * 2, CPU, 7)
    assert torch.equal(found, torch.view_as_real(torch.cat([words, image])))


def test_a_folder_of_the_other_kind_is_refused_by_its_pipeline(
    tiny_qwen_image_edit: Path, tiny_qwen_image: Path, tmp_path: Path
) -> None:
    """Their transformers are alike: what tells is which pipeline the folder was published for."""
    folder.check(tiny_qwen_image_edit, FAMILY, field="training.model.path")
    assert [family_in(one) for one in (tiny_qwen_image_edit, tiny_qwen_image)] == [FAMILY, QWEN_IMAGE]
    with pytest.raises(
        ConfigurationError, match=r"names QwenImageEditPipeline, and not QwenImagePipeline: set model\.fl"
    ):
        folder.check(tiny_qwen_image_edit, QWEN_IMAGE, field="training.model.path")
    with pytest.raises(
        ConfigurationError, match=r"names QwenImagePipeline, and not QwenImageEdit.*processor is missing"
    ):
        folder.check(tiny_qwen_image, FAMILY, field="training.model.path")
    later = shutil.copytree(tiny_qwen_image_edit, tmp_path / "plus")
    index = json.loads((later / "model_index.json").read_text())
    (later / "model_index.json").write_text(json.dumps(index | {"_class_name": "QwenImageEditPlusPipeline"}))
    with pytest.raises(ConfigurationError, match="names QwenImageEditPlusPipeline, and not QwenImageEditPipeline"):
        folder.check(later, FAMILY, field="training.model.path")


def test_the_plan_has_the_tokens_of_what_is_seen_and_of_both_pictures() -> None:
    pairs = {"name": "edits", "source": {"path": "/a"}, "conditioning": {"kind": "Reference", "source": {"path": "/b"}}}
    training = Training.model_validate(
        {
            "model": EDIT.model_dump(mode="json", exclude_none=True),
            "steps": 1,
            "resolution": 1024,
            "data": {"datasets": [pairs]},
        }
    )
    work = work_of(training, FAMILY.published, ranks=8, ranks_per_node=8)
    assert work.image_tokens == 2 * 64 * 64
    assert work.text_tokens == 512 + 1456 + 2
    width, height = max((SIGHT.size(*one) for one in ((10, 1), (1, 10), (9, 1), (1, 1))), key=tokens_of)
    assert tokens_of((width, height)) <= 1456


def tokens_of(size: tuple[int, int]) -> int:
    wide, high = sight.Bounds().size(*size)
    return wide * high // sight.EDGE**2


def test_a_step_on_zeros_has_the_tokens_of_both_pictures(tiny_qwen_image_edit: Path) -> None:
    model: Any = transformer.load(tiny_qwen_image_edit)
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=sys.maxsize)
    tokens = []
    model.img_in.register_forward_pre_hook(lambda _, arguments: tokens.append(arguments[0].shape[1]))
    step_on_zeros(model, Shape(8, 12, 32, Reference.BEHIND), model=EDIT, batch_size=2, masked=True)
    assert set(tokens) == {2 * 24}


@pytest.mark.parametrize("scale", quick_first([1.0, 4.0]))
def test_a_picture_is_that_of_the_pipeline_with_the_same_seed_and_guidance(
    pipeline: Any,
    encoder: seen_captions.SeeingEncoder,
    tiny_qwen_image_edit: Path,
    monkeypatch: pytest.MonkeyPatch,
    scale: float,
) -> None:
    """The pipeline draws by a reference of a megapixel: here by one of the picture's size, which takes seconds less."""
    width, height, steps, seed = 96, 64, 4, 7
    monkeypatch.setattr(pipeline_qwenimage_edit, "calculate_dimensions", lambda *_: (width, height, None))
    shown = drawn(width, height)
    expected = pipeline(
        image=Image.fromarray(shown), prompt="make it day", negative_prompt="craters", width=width, height=height,
        num_inference_steps=steps, true_cfg_scale=scale, generator=torch.Generator().manual_seed(seed), output_type="pil",
    ).images[0]  # fmt: skip
    sequences, pooled, lengths = encoder.encode(["make it day", "craters"], [shown, shown])
    prompt, negative = (
        Text(sequence=one[None, :length].float(), pooled=pooled[:1])
        for one, length in zip(sequences, lengths, strict=True)
    )
    model: Any = transformer.load(tiny_qwen_image_edit).float()
    CODE.install(model, attend=attend_with(Attention.SDPA), recomputed=0)
    reference = PictureEncoder(tiny_qwen_image_edit, FAMILY, CPU, code=CODE).encode_reference(shown[None])
    latents = denoise(
        model,
        draw_noise(seed, FAMILY.grid, channels=4, width=width, height=height),
        prompt,
        reference=reference,
        family=FAMILY,
        code=CODE,
        guidance=Guidance(told=None, scale=scale, negative=negative),
        scheduler=read_scheduler(tiny_qwen_image_edit, FAMILY),
        steps=steps,
        go_on=lambda: None,
    )
    found = np.asarray(
        PictureDecoder(tiny_qwen_image_edit, FAMILY, CPU, code=CODE).decode(latents)[0], dtype=np.float32
    )
    apart = np.abs(found - np.asarray(expected, dtype=np.float32))
    assert apart.max() <= 1.0
    assert apart.mean() < 0.001
    assert found.std() > 10.0  # it is no even surface, of which any loop would make the same
