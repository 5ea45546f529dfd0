"""The model families that a configuration of SimpleTuner is read for, in its words."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_import.draft import Draft
    from oarlock_import.options import Options
    from oarlock_trainer.models.family import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What SimpleTuner calls the parts of one family."""

    family: Family
    default: str
    """The model_flavour that is taken where none is named."""
    flavors: Mapping[str, ModelFlavor]
    """By model_flavour."""
    repositories: Mapping[ModelFlavor, str]
    """Of the hub."""
    modules: Mapping[str, tuple[str, ...]]
    """Class of the transformer's modules -> names and presets of the linear layers in it, for LyCORIS."""
    largest: int
    """The larger side of the family's largest layer within blocks: from half of it on LyCORIS trains whole factors."""
    assisted: frozenset[ModelFlavor] = frozenset()
    """Whose adapters SimpleTuner trains over those of an assistant."""
    targets: tuple[str, ...] = ()
    """The layers that LoRA's adapters always get, where no option chooses them."""
    keeps_vae: bool = False
    """Whether SimpleTuner takes the model's own VAE whatever options say."""
    guidance: float | None = None
    """What the model is told in training whatever options say; None where they decide."""
    unread: tuple[str, ...] = ()
    """Options that SimpleTuner does not look at for this family."""
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Option -> the one value that a job can do, and why no other."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Option -> how the job is not the same where it is absent."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """How names of flavours begin that are not here, and why."""

    def why_not(self, flavour: str) -> str:
        """Why a flavour is not here, where that is known; empty otherwise."""
        return next((why for name, why in self.elsewhere.items() if flavour.startswith(name)), "")

    def flavor_of(self, model: str) -> ModelFlavor | None:
        """The flavor whose repository a path or name ends with, in small or capital letters."""
        name = posixpath.basename(model).lower()
        return next((one for one, repo in self.repositories.items() if name == posixpath.basename(repo).lower()), None)

    def published(self, model: str) -> str:
        """A repository's name as its publisher spells it; that of somebody else's copy stays as it is."""
        return next((repo for repo in self.repositories.values() if repo.lower() == model.lower()), model)


def _feed_forward(family: Family) -> tuple[str, ...]:
    parts = ("ff", "feed_forward", "img_mlp", "txt_mlp")
    return tuple(name for name in family.presets.names["all+ffs"] if name.startswith(parts))


_FLUX1, _Z_IMAGE = FAMILIES[ModelFamily.FLUX1], FAMILIES[ModelFamily.Z_IMAGE]
_SD3, _FLUX2 = FAMILIES[ModelFamily.STABLE_DIFFUSION_3], FAMILIES[ModelFamily.FLUX2]
_QWEN_IMAGE, _WAN = FAMILIES[ModelFamily.QWEN_IMAGE], FAMILIES[ModelFamily.WAN]
_SINGLE = ("attn.to_qkv_mlp_proj", "attn.to_out")
_DOUBLE = tuple(name for name in _FLUX2.presets.names["all"] if name not in _SINGLE)
_WORDS = {
    "flux": Words(
        family=_FLUX1,
        default="krea",
        flavors={
            "dev": ModelFlavor.DEV,
            "schnell": ModelFlavor.SCHNELL,
            "krea": ModelFlavor.KREA,
            "kontext": ModelFlavor.KONTEXT,
        },
        repositories={
            ModelFlavor.DEV: "black-forest-labs/FLUX.1-dev",
            ModelFlavor.KREA: "black-forest-labs/FLUX.1-Krea-dev",
            ModelFlavor.SCHNELL: "black-forest-labs/FLUX.1-schnell",
            ModelFlavor.KONTEXT: "black-forest-labs/FLUX.1-Kontext-dev",
        },
        assisted=frozenset({ModelFlavor.SCHNELL}),
        modules={"Attention": ("all",), "FluxAttention": ("all",), "FeedForward": _feed_forward(_FLUX1)},
        largest=15_360,
    ),
    "flux2": Words(
        family=_FLUX2,
        default="klein-9b",
        flavors={
            "dev": ModelFlavor.DEV,
            "klein-4b": ModelFlavor.KLEIN_BASE_4B,
            "klein-9b": ModelFlavor.KLEIN_BASE_9B,
        },
        repositories={
            ModelFlavor.DEV: "black-forest-labs/FLUX.2-dev",
            ModelFlavor.KLEIN_BASE_4B: "black-forest-labs/FLUX.2-klein-base-4B",
            ModelFlavor.KLEIN_BASE_9B: "black-forest-labs/FLUX.2-klein-base-9B",
            ModelFlavor.KLEIN_4B: "black-forest-labs/FLUX.2-klein-4B",
            ModelFlavor.KLEIN_9B: "black-forest-labs/FLUX.2-klein-9B",
        },
        modules={
            "Flux2TransformerBlock": _DOUBLE,
            "Flux2SingleTransformerBlock": _SINGLE,
            "Flux2Attention": tuple(name for name in _DOUBLE if name.startswith("attn.")),
            "Flux2ParallelSelfAttention": _SINGLE,
            "Flux2FeedForward": _FLUX2.presets.names["mlp"],
        },
        largest=9 * _FLUX2.published.width,
        targets=("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.to_qkv_mlp_proj"),
        guidance=1.0,
    ),
    "z_image": Words(
        family=_Z_IMAGE,
        default="turbo-ostris-v2",
        flavors={"base": ModelFlavor.BASE, "turbo": ModelFlavor.TURBO, "turbo-ostris-v2": ModelFlavor.TURBO},
        repositories={
            ModelFlavor.BASE: "Tongyi-MAI/Z-Image",
            ModelFlavor.TURBO: "Tongyi-MAI/Z-Image-Turbo",
        },
        assisted=frozenset({ModelFlavor.TURBO}),
        modules={
            "Attention": ("all",),
            "FeedForward": _feed_forward(_Z_IMAGE),
            "ZImageTransformerBlock": ("all+ffs", "adaLN_modulation.0"),
        },
        largest=15_360,
        targets=_Z_IMAGE.presets.names["all"],
    ),
    "sd3": Words(
        family=_SD3,
        default="medium",
        flavors={"large": ModelFlavor.LARGE, "medium": ModelFlavor.MEDIUM},
        repositories={
            ModelFlavor.LARGE: "stabilityai/stable-diffusion-3.5-large",
            ModelFlavor.MEDIUM: "stabilityai/stable-diffusion-3.5-medium",
        },
        modules={"Attention": ("all",), "FeedForward": _feed_forward(_SD3)},
        largest=4 * _SD3.published.width,
        targets=_SD3.presets.names["mmdit"],
        keeps_vae=True,
        unread=("flux_attention_masked_training",),
        refused=dict.fromkeys(
            ("sd3_clip_uncond_behaviour", "sd3_t5_uncond_behaviour"),
            ("empty_string", "captions that are dropped are empty here, not zeros; set it to empty_string"),
        ),
        differs={
            "tokenizer_max_length": "SimpleTuner takes 154 of T5's tokens, a job 256, as diffusers' pipeline does"
        },
    ),
    "qwen_image": Words(
        family=_QWEN_IMAGE,
        default="v2.0",
        flavors={"v1.0": ModelFlavor.V1, "v2.0": ModelFlavor.V2512, "edit-v1": ModelFlavor.EDIT},
        repositories={
            ModelFlavor.V1: "Qwen/Qwen-Image",
            ModelFlavor.V2512: "Qwen/Qwen-Image-2512",
            ModelFlavor.EDIT: "Qwen/Qwen-Image-Edit",
        },
        modules={
            "Attention": ("all",),
            "FeedForward": _feed_forward(_QWEN_IMAGE),
            "QwenImageTransformerBlock": ("all+ffs", "img_mod.1", "txt_mod.1"),
        },
        largest=6 * _QWEN_IMAGE.published.width,
        targets=_QWEN_IMAGE.presets.names["mmdit"],
        unread=("flux_attention_masked_training",),
    ),
    "wan": Words(
        family=_WAN,
        default="t2v-480p-1.3b-2.1",
        flavors={"t2v-480p-1.3b-2.1": ModelFlavor.T2V1_3B, "t2v-480p-14b-2.1": ModelFlavor.T2V14B},
        repositories={
            ModelFlavor.T2V1_3B: "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
            ModelFlavor.T2V14B: "Wan-AI/Wan2.1-T2V-14B-Diffusers",
        },
        modules={
            "Attention": ("all",),
            "FeedForward": _feed_forward(_WAN),
            "WanTransformerBlock": ("all+ffs",),
        },
        largest=8960,
        targets=_WAN.presets.names["all"],
        unread=("flux_attention_masked_training",),
        elsewhere={
            "i2v": "it is given a first frame",
            "flf2v": "it is given a first and a last frame",
            "vace": "it is given other videos",
            "ti2v": "Wan 2.2 has another VAE",
        },
    ),
}


def words_by_name(family: str) -> Words:
    """Those of a family by SimpleTuner's name for it."""
    return _WORDS[family]


def is_known(options: Options) -> bool:
    """Whether a configuration names a family that is here: words of another one mean nothing."""
    return "model_family" in options and options.value("model_family") in _WORDS


def words_of(options: Options) -> Words:
    """Those of the family that a configuration names; of the first one where it names none that is known."""
    return _WORDS[options.value("model_family") if is_known(options) else "flux"]


def family_of(options: Options, draft: Draft) -> Family:
    """The family that a configuration names, with the numbers of the flavor that the draft has."""
    family = words_of(options).family
    return family.variants.get(draft.get("training.model.flavor"), family)
