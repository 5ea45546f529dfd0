"""A FLUX.1 model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a FLUX.1 directory of diffusers reads this one: transformer, VAE, CLIP and T5 encoders, both
tokenizers (trained here, on a few sentences), scheduler. Nothing is downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import io
import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
POOLED_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 32
"""Shorter than FLUX.1's 512: most of a tiny step would be padding."""

_SENTENCES = (
    "a photograph of a small boat on a quiet lake in the morning",
    "two cats asleep on a red chair beside the window",
    "the surface of the moon with craters and long shadows",
    "a cup of coffee and a newspaper on a wooden table",
    "an astronaut in a white suit smiles at the camera",
    "bricks, grass and gravel seen from close by",
    "a rocket rises from its pad in a cloud of smoke",
    "people walk through a street after the rain, lights reflected in the water",
)


def write(directory: Path, *, seed: int = 0, layers: int = 2, single_layers: int = 4) -> None:
    """Write the model. The same seed gives the same bytes. Says nothing."""
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    clip_tokens = _write_clip_tokenizer(directory / "tokenizer")
    t5_tokens = _write_t5_tokenizer(directory / "tokenizer_2")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(FLUX1.transformer)(
            in_channels=4 * LATENT_CHANNELS,
            num_layers=layers,
            num_single_layers=single_layers,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=TEXT_WIDTH,
            pooled_projection_dim=POOLED_WIDTH,
            guidance_embeds=True,
            axes_dims_rope=(4, 4, 8),
        )
        vae = imported(FLUX1.autoencoder)(
            in_channels=3,
            out_channels=3,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            latent_channels=LATENT_CHANNELS,
            norm_num_groups=4,
            sample_size=64,
            scaling_factor=0.3611,
            shift_factor=0.1159,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
        clip = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=clip_tokens,
                hidden_size=POOLED_WIDTH,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=77,
                projection_dim=POOLED_WIDTH,
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=1,
            )
        )
        t5 = T5EncoderModel(
            T5Config(
                vocab_size=t5_tokens, d_model=TEXT_WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                feed_forward_proj="gated-gelu", tie_word_embeddings=False,
            )
        )  # fmt: skip
    torch.nn.Module.to(
        transformer, torch.bfloat16
    )  # diffusers' own .to() warns of modules that must not be, naming none
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    clip.save_pretrained(directory / "text_encoder")
    t5.save_pretrained(directory / "text_encoder_2")
    imported(FLUX1.scheduler)(
        shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256,
        max_image_seq_len=4096,
    ).save_pretrained(directory / "scheduler")  # fmt: skip
    _write_json(directory / "model_index.json", _model_index())
    make_ordinary(directory)


def _model_index() -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "FluxPipeline",
        "_diffusers_version": __version__,
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def _write_clip_tokenizer(directory: Path) -> int:
    """Byte-pair tokenizer in CLIP's manner; returns the size of its vocabulary.

    The pieces are counted here, not by a trainer: CLIP's marks the end of a word with </w>, and ties must not depend on
    a hash seed.
    """
    from transformers import CLIPTokenizer  # noqa: PLC0415

    words = [[*word[:-1], word[-1] + "</w>"] for line in _SENTENCES for word in _letters(line).split()]
    letters = sorted({letter for letter in map(chr, range(33, 127)) if not letter.isupper()})
    vocabulary = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    merges: list[tuple[str, str]] = []
    for _ in range(120):
        pairs: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(sorted(pairs), key=lambda pair: pairs[pair])
        merges.append(best)
        vocabulary.append("".join(best))
        words = [_merged(word, best) for word in words]
    tokenizer = CLIPTokenizer(
        vocab={piece: number for number, piece in enumerate(dict.fromkeys(vocabulary))},
        merges=merges,
        model_max_length=77,
    )
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return result


def _letters(line: str) -> str:
    return "".join(letter if letter.isalnum() else f" {letter} " for letter in line.lower())


def _write_t5_tokenizer(directory: Path) -> int:
    """SentencePiece tokenizer in T5's manner; returns the size of its vocabulary."""
    import sentencepiece  # noqa: PLC0415
    from transformers import T5TokenizerFast  # noqa: PLC0415

    source = random.Random(0)  # noqa: S311 - shuffles words, guards nothing
    words = " ".join(_SENTENCES).split()
    lines = [*_SENTENCES, *(" ".join(source.sample(words, 8)) for _ in range(64))]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=160, model_type="unigram", num_threads=1,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocabulary = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    tokenizer = T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=TEXT_TOKENS)
    tokenizer.save_pretrained(directory)
    (directory / "spiece.model").write_bytes(model.getvalue())
    return len(tokenizer)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
