"""The Z-Image transformer's forward pass, on a ZImageTransformer2DModel of diffusers as it is.

Its blocks compute as diffusers has them, but for attention, which is the job's kernel. What is around them is ours, because
diffusers cuts each sample's text to its length, which a rank would have to read back from the GPU: here all samples are one
tensor, and a mask says which of its tokens there are. The result is that of diffusers' forward: in float32 to 1e-5, forward
and backward.

In Z-Image d = 3840 (30 heads of 128), t = 2560, T = 512 at most, and N = 4096 for 1024 x 1024 pixels. Image and text are
each padded to a multiple of 32 tokens with a token that is learnt and seen: to N' and T'.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from oarlock_trainer.models.compute.recompute import call
from oarlock_trainer.models.compute.rotary import rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from oarlock_trainer.models.compute.attention import Attend

_MULTIPLE = 32
"""Of tokens: diffusers' SEQ_MULTI_OF."""


def install(transformer: Any, *, attend: Attend, recomputed: int = 0) -> None:
    """Give diffusers' transformer our forward pass. Its first `recomputed` blocks recompute their activations."""
    for blocks in (transformer.noise_refiner, transformer.context_refiner, transformer.layers):
        for block in blocks:
            block.attention.forward = partial(_attention, block.attention, attend)
    transformer.forward = Forward(transformer, recomputed=recomputed)


class Forward:
    """Takes the place of the model's `forward`."""

    def __init__(self, transformer: Any, *, recomputed: int) -> None:
        self._transformer = transformer
        self.recomputed = recomputed

    def __call__(
        self,
        x: Tensor | Sequence[Tensor],
        t: Tensor,
        cap_feats: Tensor | Sequence[Tensor],
        return_dict: bool = True,  # noqa: FBT001, FBT002 - diffusers' own signature
        *,
        text_mask: Tensor | None = None,
        joint_attention_kwargs: None = None,
    ) -> Any:
        """Predict the negative velocity. The arguments are those of diffusers' forward, less ControlNet and other pictures.

        x (B, C, 1, h, w), t (B,), which is 1 where there is no noise, and cap_feats (B, T, t), or texts of any length in a
        list. `text_mask` (B, T) bool, True where a token is no padding, none within the text. Returns B tensors
        (C, 1, h, w), in the weights' type, in a tuple or in diffusers' output.
        """
        del joint_attention_kwargs
        model = self._transformer
        images = x if isinstance(x, torch.Tensor) else torch.stack(list(x))
        texts, text_mask = _in_one(cap_feats, text_mask)
        height, width = (side // model.config.all_patch_size[0] for side in images.shape[-2:])
        ends, text_seen = _ends(texts, text_mask)

        modulation = model.t_embedder(t * model.t_scale).type_as(images)
        image = _padded(_only(model.all_x_embedder)(_pack(images[:, :, 0], height, width)), model.x_pad_token)
        image_table = _table(model, _image_ids(ends, height, width, image.shape[1]))
        text = _padded(model.cap_embedder(texts), model.cap_pad_token)
        if text_mask is not None:
            kept = pad(text_mask, (0, text.shape[1] - text_mask.shape[1]))
            text = torch.where(kept[..., None], text, model.cap_pad_token)
        text_table = _table(model, _text_ids(text.shape[1], ends))

        number = 0

        def through(blocks: Any, tokens: Tensor, *given: Any) -> Tensor:
            nonlocal number
            for block in blocks:
                tokens = call(block, tokens, *given, recomputed=number < self.recomputed)
                number += 1
            return tokens

        image = through(model.noise_refiner, image, None, image_table, modulation)
        text = through(model.context_refiner, text, text_seen, text_table)
        seen = None if text_seen is None else pad(text_seen, (image.shape[1], 0), value=True)
        table = torch.cat([image_table, text_table.expand(len(image_table), -1, -1, -1)], dim=1)
        tokens = through(model.layers, torch.cat([image, text], dim=1), seen, table, modulation)

        patches = _only(model.all_final_layer)(tokens[:, : height * width], c=modulation)
        output = list(_unpack(patches, height, width, images.shape[1])[:, :, None])
        if not return_dict:
            return (output,)
        from diffusers.models.modeling_outputs import Transformer2DModelOutput  # noqa: PLC0415 - only for pipelines

        return Transformer2DModelOutput(sample=output)


def _attention(
    attention: Any, attend: Attend, states: Tensor, *, attention_mask: Tensor | None, freqs_cis: Tensor
) -> Tensor:
    """Attention of a block: (B, S, d) -> the same. The mask is (B, 1, 1, S) bool or none, freqs_cis (1 or B, S, D/2, 2)."""

    def heads(layer: Any) -> Tensor:
        result: Tensor = layer(states)
        return result.view(*result.shape[:-1], attention.heads, -1)

    query = rotate(attention.norm_q(heads(attention.to_q)), freqs_cis)
    key = rotate(attention.norm_k(heads(attention.to_k)), freqs_cis)
    result: Tensor = attention.to_out[0](attend(query, key, heads(attention.to_v), attention_mask))
    return result


def _in_one(texts: Tensor | Sequence[Tensor], mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Texts as one tensor (B, T, t), and which of its tokens are no padding: (B, T) bool, or None where all are."""
    if isinstance(texts, torch.Tensor):
        return texts, mask
    lengths = [len(text) for text in texts]
    whole = pad_sequence(list(texts), batch_first=True)
    if len(set(lengths)) == 1:
        return whole, None
    return whole, torch.tensor(lengths, device=whole.device)[:, None] > torch.arange(max(lengths), device=whole.device)


def _ends(texts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Tokens of each sample's text with those that it is padded with (1 or B,), and which of T' they are: (B, 1, 1, T').

    None of a mask where they are all: where texts have one length.
    """
    whole = -(-texts.shape[1] // _MULTIPLE) * _MULTIPLE
    if mask is None:
        return torch.full((1,), whole, dtype=torch.int32, device=texts.device), None
    lengths = mask.sum(dim=1, dtype=torch.int32)
    ends = (lengths + (_MULTIPLE - 1)) // _MULTIPLE * _MULTIPLE
    return ends, (torch.arange(whole, device=texts.device) < ends[:, None])[:, None, None]


def _padded(tokens: Tensor, token: Tensor) -> Tensor:
    """(B, S, d) -> (B, S', d): with `token` (1, d) behind them."""
    missing = -tokens.shape[1] % _MULTIPLE
    return torch.cat([tokens, token.expand(len(tokens), missing, -1)], dim=1) if missing else tokens


def _text_ids(tokens: int, ends: Tensor) -> Tensor:
    """(1, T', 3) int32: a text's tokens follow each other along the first axis, from 1 on."""
    places = torch.arange(1, tokens + 1, dtype=torch.int32, device=ends.device)
    return pad(places[None, :, None], (0, 2))


def _image_ids(ends: Tensor, height: int, width: int, tokens: int) -> Tensor:
    """(1 or B, N', 3) int32: behind its text, row and column; 0 of the tokens that an image is padded with."""
    rows, columns = (torch.arange(side, dtype=torch.int32, device=ends.device) for side in (height, width))
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)
    first = (ends + 1)[:, None, None].expand(-1, len(grid), -1)
    ids = torch.cat([first, grid.expand(len(ends), -1, -1)], dim=-1)
    return pad(ids, (0, 0, 0, tokens - len(grid)))


def _table(model: Any, ids: Tensor) -> Tensor:
    """(1 or B, S, D/2, 2) float32, cos and sin, of ids (1 or B, S, 3): the angles are diffusers' own."""
    return torch.view_as_real(model.rope_embedder(ids.flatten(0, 1))).view(*ids.shape[:2], -1, 2)


def _only(layers: Any) -> Any:
    """The one of layers for several sizes of patches."""
    (layer,) = layers.values()
    return layer


def _pack(latents: Tensor, height: int, width: int) -> Tensor:
    """(B, C, h, w) -> (B, N, 4 C): a token is a patch of 2 x 2, its channels last."""
    batch, channels = latents.shape[:2]
    patches = latents.reshape(batch, channels, height, latents.shape[-2] // height, width, latents.shape[-1] // width)
    return patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def _unpack(tokens: Tensor, height: int, width: int, channels: int) -> Tensor:
    """(B, N, 4 C) -> (B, C, h, w): the inverse of `_pack`."""
    side = round((tokens.shape[-1] // channels) ** 0.5)
    patches = tokens.reshape(len(tokens), height, width, side, side, channels)
    return patches.permute(0, 5, 1, 3, 2, 4).reshape(len(tokens), channels, height * side, width * side)
