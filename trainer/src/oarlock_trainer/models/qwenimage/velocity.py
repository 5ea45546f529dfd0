"""What a Qwen-Image transformer is given and says: latents packed into tokens, and the sizes of their pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.functional import pad

from oarlock_trainer.models.qwenimage.tokens import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor, nn


def velocity(
    model: nn.Module,
    noisy: Tensor,
    sigmas: Tensor,
    *,
    text: Tensor,
    pooled: Tensor,
    text_mask: Tensor | None,
    guidance: Tensor | None,
) -> Tensor:
    """See `family_code.Velocity`; `model` is diffusers' QwenImageTransformer2DModel, which is told no guidance. C = 16.

    The model is told sigma, which its pipeline rounds as a thousand times sigma. The mask is given to attention itself, text
    first: diffusers' own argument for it would have the host wait for the GPU, to look for a length that nobody asks.
    """
    del pooled, guidance  # it has no input for either
    patches = pack(noisy)
    rows, columns = patches.shape[2:]
    arguments: dict[str, Any] = {}
    if text_mask is not None:
        mask = pad(text_mask, (0, rows * columns), value=True)
        arguments["attention_kwargs"] = {"attention_mask": mask[:, None, None, :]}
    tokens: Tensor = model(
        hidden_states=patches.flatten(2).transpose(1, 2).to(text.dtype),
        encoder_hidden_states=text,
        timestep=(1000.0 * sigmas).to(text.dtype) / 1000,
        img_shapes=[[(1, rows, columns)]] * len(noisy),
        return_dict=False,
        **arguments,
    )[0]
    return unpack(tokens.transpose(1, 2).reshape(len(tokens), -1, rows, columns))
