"""Weights with the names that a model's makers give them, as in their own single files: diffusers' tables backwards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_ATTENTION = ("attn.to_q.", "attn.to_k.", "attn.to_v.")
_ADDED = ("attn.add_q_proj.", "attn.add_k_proj.", "attn.add_v_proj.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """How a family's names are made of diffusers', in this order."""

    joined: Mapping[tuple[str, ...], str]
    """Parts of names whose tensors, where all are there, are rows of one."""
    renamed: tuple[tuple[str, str], ...]
    """Patterns, and what takes the place of all that they match."""
    swapped: str
    """Pattern for the original names of tensors whose halves are the other way round."""

    def of(self, weights: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
        """The same weights by their original names, behind `prefix`."""
        found = {}
        for name, tensor in self._joined(weights).items():
            for pattern, instead in self.renamed:
                name = re.sub(pattern, instead, name)  # noqa: PLW2901 - one after another
            if re.search(self.swapped, name):
                tensor = torch.cat(tensor.chunk(2)[::-1])  # noqa: PLW2901 - the name's
            found[prefix + name] = tensor.contiguous()
        return found

    def _joined(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        left = dict(weights)
        for parts, whole in self.joined.items():
            for name in [name for name in left if f".{parts[0]}" in name]:
                rows = [name.replace(parts[0], part) for part in parts]
                if left.keys() >= set(rows):
                    left[name.replace(parts[0], whole)] = torch.cat([left.pop(row) for row in rows])
        return left


_NEVER = r"(?!)"

WAN = Original(
    joined={},
    renamed=(
        (r"\.attn1\.", ".self_attn."),
        (r"\.attn2\.", ".cross_attn."),
        (r"\.to_out\.0\.", ".o."),
        (r"\.to_([qkv])\.", r".\1."),
        (r"\.norm2\.", ".norm3."),
        (r"\.ffn\.net\.0\.proj\.", ".ffn.0."),
        (r"\.ffn\.net\.2\.", ".ffn.2."),
        (r"^scale_shift_table", "head.modulation"),
        (r"\.scale_shift_table", ".modulation"),
        (r"^proj_out\.", "head.head."),
        (r"^condition_embedder\.time_proj\.", "time_projection.1."),
        (r"^condition_embedder\.(time|text)_embedder\.linear_1\.", r"\1_embedding.0."),
        (r"^condition_embedder\.(time|text)_embedder\.linear_2\.", r"\1_embedding.2."),
    ),
    swapped=_NEVER,
)

Z_IMAGE = Original(
    joined={("attention.to_q.", "attention.to_k.", "attention.to_v."): "attention.qkv."},
    renamed=(
        (r"^all_(final_layer|x_embedder)\.2-1\.", r"\1."),
        (r"\.attention\.to_out\.0\.", ".attention.out."),
        (r"\.attention\.norm_([qk])\.", r".attention.\1_norm."),
    ),
    swapped=_NEVER,
)

_BOTH_FLUX = (
    (r"^x_embedder\.", "img_in."),
    (r"^context_embedder\.", "txt_in."),
    (r"\.linear_1\.", ".in_layer."),
    (r"\.linear_2\.", ".out_layer."),
    (r"^\w+\.timestep_embedder\.", "time_in."),
    (r"^\w+\.text_embedder\.", "vector_in."),
    (r"^\w+\.guidance_embedder\.", "guidance_in."),
    (r"^proj_out\.", "final_layer.linear."),
    (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
    (r"^transformer_blocks\.", "double_blocks."),
    (r"^(single)_transformer(_blocks\.\d+\.)", r"\1\2"),
    (r"^(single_blocks\.\d+\.)attn\.norm_q\.weight", r"\1norm.query_norm.scale"),
    (r"^(single_blocks\.\d+\.)attn\.norm_k\.weight", r"\1norm.key_norm.scale"),
    (r"\.attn\.norm_q\.weight", ".img_attn.norm.query_norm.scale"),
    (r"\.attn\.norm_k\.weight", ".img_attn.norm.key_norm.scale"),
    (r"\.attn\.norm_added_q\.weight", ".txt_attn.norm.query_norm.scale"),
    (r"\.attn\.norm_added_k\.weight", ".txt_attn.norm.key_norm.scale"),
    (r"\.attn\.to_out\.0\.", ".img_attn.proj."),
    (r"\.attn\.to_add_out\.", ".txt_attn.proj."),
)

FLUX1 = Original(
    joined={
        (*_ATTENTION, "proj_mlp."): "linear1.",
        _ATTENTION: "img_attn.qkv.",
        _ADDED: "txt_attn.qkv.",
    },
    renamed=(
        *_BOTH_FLUX,
        (r"^(single_blocks\.\d+\.)proj_out\.", r"\1linear2."),
        (r"^(single_blocks\.\d+\.)norm\.linear\.", r"\1modulation.lin."),
        (r"\.norm1\.linear\.", ".img_mod.lin."),
        (r"\.norm1_context\.linear\.", ".txt_mod.lin."),
        (r"\.ff\.net\.0\.proj\.", ".img_mlp.0."),
        (r"\.ff\.net\.2\.", ".img_mlp.2."),
        (r"\.ff_context\.net\.0\.proj\.", ".txt_mlp.0."),
        (r"\.ff_context\.net\.2\.", ".txt_mlp.2."),
    ),
    swapped=r"^final_layer\.adaLN",
)

FLUX2 = Original(
    joined={_ATTENTION: "img_attn.qkv.", _ADDED: "txt_attn.qkv."},
    renamed=(
        *_BOTH_FLUX,
        (r"^(\w+_stream_modulation\w*)\.linear\.", r"\1.lin."),
        (r"\.attn\.to_qkv_mlp_proj\.", ".linear1."),
        (r"^(single_blocks\.\d+\.)attn\.to_out\.", r"\1linear2."),
        (r"\.ff\.linear_in\.", ".img_mlp.0."),
        (r"\.ff\.linear_out\.", ".img_mlp.2."),
        (r"\.ff_context\.linear_in\.", ".txt_mlp.0."),
        (r"\.ff_context\.linear_out\.", ".txt_mlp.2."),
    ),
    swapped=r"^final_layer\.adaLN",
)


def sd3(layers: int) -> Original:
    """Of Stable Diffusion 3.5: the text's modulation of the last block has its halves the other way round, too."""
    return Original(
        joined={
            _ATTENTION: "x_block.attn.qkv.",
            _ADDED: "context_block.attn.qkv.",
            tuple(part.replace("attn", "attn2") for part in _ATTENTION): "x_block.attn2.qkv.",
        },
        renamed=(
            (r"^pos_embed\.pos_embed", "pos_embed"),
            (r"^pos_embed\.proj\.", "x_embedder.proj."),
            (r"^time_text_embed\.timestep_embedder\.linear_1\.", "t_embedder.mlp.0."),
            (r"^time_text_embed\.timestep_embedder\.linear_2\.", "t_embedder.mlp.2."),
            (r"^time_text_embed\.text_embedder\.linear_1\.", "y_embedder.mlp.0."),
            (r"^time_text_embed\.text_embedder\.linear_2\.", "y_embedder.mlp.2."),
            (r"^transformer_blocks\.", "joint_blocks."),
            (r"\.(attn2?)\.norm_([qk])\.", r".x_block.\1.ln_\2."),
            (r"\.attn\.norm_added_([qk])\.", r".context_block.attn.ln_\1."),
            (r"\.(attn2?)\.to_out\.0\.", r".x_block.\1.proj."),
            (r"\.attn\.to_add_out\.", ".context_block.attn.proj."),
            (r"\.norm1\.linear\.", ".x_block.adaLN_modulation.1."),
            (r"\.norm1_context\.linear\.", ".context_block.adaLN_modulation.1."),
            (r"\.ff\.net\.0\.proj\.", ".x_block.mlp.fc1."),
            (r"\.ff\.net\.2\.", ".x_block.mlp.fc2."),
            (r"\.ff_context\.net\.0\.proj\.", ".context_block.mlp.fc1."),
            (r"\.ff_context\.net\.2\.", ".context_block.mlp.fc2."),
            (r"^proj_out\.", "final_layer.linear."),
            (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
        ),
        swapped=rf"^final_layer\.adaLN|^joint_blocks\.{layers - 1}\.context_block\.adaLN",
    )
