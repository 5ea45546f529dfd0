"""Each family's captions are encoded as diffusers' pipeline encodes prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oarlock_trainer.ranks import preload

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours
import torch  # noqa: E402 - reads the environment that was just settled
from tiny_pipelines import CPU  # noqa: E402

from oarlock_trainer.models.families import FAMILIES  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_pipelines import Tiny

LONG = "the surface of the moon with craters and long shadows, " * 9
CAPTIONS = ["a cat", "two cats asleep", "", "see [IMG] here", LONG]


def test_captions_are_encoded_as_the_pipeline_encodes_prompts(tiny: Tiny) -> None:
    record, tokens = tiny.record, tiny.captions.tokens
    sequences, pooled, lengths = tiny.captions.encode(CAPTIONS)
    assert (sequences.dtype, pooled.dtype, sequences.shape[1]) == (torch.bfloat16, torch.bfloat16, tokens)
    for sequence, vector, length, wanted in zip(sequences, pooled, lengths, tiny.texts(CAPTIONS), strict=True):
        expected = wanted.sequence[0]
        assert len(expected) == (tokens if record.is_padded else length)
        if record.is_rounded:
            torch.testing.assert_close(sequence[: len(expected)].float(), expected, rtol=2**-8, atol=1e-4)
        else:
            assert torch.equal(sequence[: len(expected)], expected.bfloat16())
        assert torch.equal(vector, wanted.pooled[0].bfloat16())
        if record.has_zeros:
            assert sequence[:length].any(dim=1).all()
            assert not sequence[length:].any()
    assert (lengths[2], lengths[-1]) == (record.of_nothing, tokens)
    assert lengths[2] < lengths[0] < lengths[1] < tokens or set(lengths) == {record.of_nothing}


def test_a_caption_alone_is_encoded_as_beside_longer_ones(tiny: Tiny) -> None:
    (beside, *_), (vector, *_), (length, *_) = tiny.captions.encode(CAPTIONS)
    (alone,), (alone_vector,), lengths = tiny.captions.encode(CAPTIONS[:1])
    assert lengths == [length]
    kept = None if tiny.record.is_padded else length
    for found, wanted in ((alone[:kept], beside[:kept]), (alone_vector, vector)):
        torch.testing.assert_close(found.float(), wanted.float(), rtol=2**-8, atol=1e-4)


def test_weights_that_stay_in_the_nodes_memory_encode_the_same_and_leave_the_device_again(tiny: Tiny) -> None:
    streamed = tiny.code.caption_encoder(tiny.folder, tiny.record.flavor, CPU, streamed=True)
    sequences, pooled, lengths = streamed.encode(CAPTIONS)
    wanted, wanted_pooled, wanted_lengths = tiny.captions.encode(CAPTIONS)
    assert torch.equal(sequences, wanted)
    assert torch.equal(pooled, wanted_pooled)
    assert lengths == wanted_lengths
    for encoder, place in ((streamed, "meta"), (tiny.captions, "cpu")):
        network = getattr(encoder, tiny.record.streamed)
        assert {weight.device.type for weight in network.parameters()} == {place}


def test_what_encoders_make_is_as_large_as_their_configurations_say(tiny: Tiny, tmp_path: Path) -> None:
    sequences, pooled, _ = tiny.captions.encode(["a cat"])
    latents = tiny.pictures.encode(np.zeros((1, 32, 48, 3), np.uint8), [0])
    family = FAMILIES[tiny.record.key]
    for flavor, facts in family.flavors.items():
        if facts.sight or family.variants.get(flavor, family).encoded != tiny.family.encoded:
            continue  # it has encoders of its own
        found = family.read_encoded(tiny.folder, flavor)
        assert sequences.shape[1:] == (found.tokens, found.width)
        assert pooled.shape[1:] == (found.pooled,)
        assert latents.shape == (1, found.channels, 32 // found.factor, 48 // found.factor)
    for flavor, one in {next(iter(family.flavors)): family, **family.variants}.items():
        assert family.read_encoded(tmp_path, flavor) == one.encoded, flavor
