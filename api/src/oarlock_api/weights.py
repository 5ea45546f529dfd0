"""Which model is trained, where its weights come from, and which of its parameters move."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.location import S3Location
from oarlock_api.primitives import AbsolutePath, Probability, Word
from oarlock_api.rules import ListSet, Rule, exactly_one, only_when
from oarlock_api.secret_refs import SecretKeyRef

RepositoryName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._]*(/[A-Za-z0-9][-A-Za-z0-9._]*)?$")
]


class ModelFamily(StrEnum):
    """Architectures that can be trained."""

    FLUX1 = "Flux1"
    FLUX2 = "Flux2"
    Z_IMAGE = "ZImage"
    STABLE_DIFFUSION_3 = "StableDiffusion3"
    QWEN_IMAGE = "QwenImage"
    WAN = "Wan"


class ModelFlavor(StrEnum):
    """Variants of an architecture."""

    DEV = "Dev"
    SCHNELL = "Schnell"
    KREA = "Krea"
    KONTEXT = "Kontext"
    FILL = "Fill"
    CANNY = "Canny"
    DEPTH = "Depth"
    KLEIN_BASE_4B = "KleinBase4B"
    KLEIN_BASE_9B = "KleinBase9B"
    KLEIN_4B = "Klein4B"
    KLEIN_9B = "Klein9B"
    BASE = "Base"
    TURBO = "Turbo"
    LARGE = "Large"
    MEDIUM = "Medium"
    V1 = "V1"
    V2512 = "V2512"
    EDIT = "Edit"
    T2V1_3B = "T2V-1.3B"
    T2V14B = "T2V-14B"
    """The last two as their publisher writes them: without a hyphen the first reads as version 1.3."""


FLAVORS = {
    ModelFamily.FLUX1: (
        ModelFlavor.DEV,
        ModelFlavor.SCHNELL,
        ModelFlavor.KREA,
        ModelFlavor.KONTEXT,
        ModelFlavor.FILL,
        ModelFlavor.CANNY,
        ModelFlavor.DEPTH,
    ),
    ModelFamily.FLUX2: (
        ModelFlavor.KLEIN_BASE_4B,
        ModelFlavor.KLEIN_BASE_9B,
        ModelFlavor.KLEIN_4B,
        ModelFlavor.KLEIN_9B,
        ModelFlavor.DEV,
    ),
    ModelFamily.Z_IMAGE: (ModelFlavor.BASE, ModelFlavor.TURBO),
    ModelFamily.STABLE_DIFFUSION_3: (ModelFlavor.LARGE, ModelFlavor.MEDIUM),
    ModelFamily.QWEN_IMAGE: (ModelFlavor.V1, ModelFlavor.V2512, ModelFlavor.EDIT),
    ModelFamily.WAN: (ModelFlavor.T2V1_3B, ModelFlavor.T2V14B),
}
"""Variants of each architecture; the first is taken where a job names none."""

BESIDE = (ModelFlavor.FILL, ModelFlavor.CANNY, ModelFlavor.DEPTH)
"""Variants that have a second picture in channels beside the noise, and so are never without."""
SEEING = (ModelFlavor.EDIT,)
"""Those whose text encoder sees it beside the caption, and so are never without."""
REFERENCED = {
    ModelFamily.FLUX1: (ModelFlavor.KONTEXT, *BESIDE),
    ModelFamily.FLUX2: FLAVORS[ModelFamily.FLUX2],
    ModelFamily.QWEN_IMAGE: SEEING,
}
"""Variants that may be given one."""

VIDEO_FAMILIES = (ModelFamily.WAN,)
"""Those that know videos; to them a picture is a video of one frame."""
VIDEO_INTERVAL = 4
"""Frames of a latent behind the first one, of all of them: a video has 1 + a multiple of it."""
VIDEO_FPS = 16
"""Frames a second of the videos that all of them draw."""
VideoFrames = Annotated[StrictInt, Field(ge=1, le=1025)]
"""Of one video."""


def takes_reference(family: ModelFamily, flavor: ModelFlavor | None) -> bool:
    """Whether a variant, or a family's first one, may be given a second picture."""
    return (flavor or FLAVORS[family][0]) in REFERENCED.get(family, ())


class Method(StrEnum):
    """Which parameters are trained."""

    FULL = "Full"
    LORA = "LoRA"


class QuantizeBase(StrEnum):
    """Number format of the frozen weights under adapters."""

    NONE = "None"
    INT8 = "Int8"
    NF4 = "NF4"
    FP8 = "FP8"


class AdapterAlgorithm(StrEnum):
    """What an adapter adds to its layer's weight."""

    LORA = "LoRA"
    LOKR = "LoKr"


class HubModel(Group):
    """A repository of a model hub, downloaded once per node."""

    repo: RepositoryName = Field(description="Repository, such as owner/name.")
    revision: Word | None = Field(default=None, description="Commit, tag or branch; absent = the main branch.")
    token_secret_ref: SecretKeyRef | None = Field(default=None, description="Secret with the access token.")


class Model(Group):
    """The base model, in the layout of diffusers."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one("path", "s3", "hub", message="say where the model lies: set exactly one of path, s3 and hub"),
        Rule(
            cel="!has(self.flavor) || "
            + " || ".join(
                f"(self.family == '{family}' && self.flavor in {[str(flavor) for flavor in flavors]})"
                for family, flavors in FLAVORS.items()
            ),
            message="model.flavor is no variant of model.family: "
            + ", ".join(f"{family} has {', '.join(flavors)}" for family, flavors in FLAVORS.items())
            + "; leave it out for the first one",
            holds=lambda model: model.flavor is None or model.flavor in FLAVORS[model.family],
        ),
    )

    family: ModelFamily = Field(description="Architecture. SimpleTuner: model_family.")
    flavor: ModelFlavor | None = Field(
        default=None,
        description="Variant; absent = the family's first one (Flux1: Dev, Flux2: KleinBase4B, ZImage: Base, "
        "StableDiffusion3: Large, QwenImage: V1, Wan: T2V-1.3B). Kontext, Fill, Canny, Depth and Edit are given a reference, "
        "Flux2 may be. Of Flux2's Klein the Base ones are those to train, the others are distilled to four steps. "
        "SimpleTuner: model_flavour.",
    )
    path: AbsolutePath | None = Field(
        default=None,
        description="Absolute path in the pod. SimpleTuner: pretrained_model_name_or_path.",
    )
    s3: S3Location | None = Field(default=None, description="A prefix of an S3 or R2 bucket.")
    hub: HubModel | None = Field(default=None, description="A repository of a model hub.")

    @property
    def takes_reference(self) -> bool:
        """Whether this variant may be given a second picture."""
        return takes_reference(self.family, self.flavor)


Targets = Annotated[tuple[Word, ...], Field(max_length=64), ListSet()]
"""Ends of modules' names, or presets of them."""

Factor = Annotated[
    StrictInt,
    Field(ge=-1, le=1024),
    Rule(
        cel="self == -1 || self >= 2",
        message="factor is 2 or more, or -1 for the one that is nearest to the square root",
        holds=lambda factor: factor == -1 or factor >= 2,
    ),
]


class LokrFactor(Group):
    """Another factor for some of the targets."""

    targets: Annotated[Targets, Field(min_length=1)] = Field(description="Names and presets, as in lora.targets.")
    factor: Factor = Field(description="In place of lokr.factor. LyCORIS: module_algo_map.")


class Lokr(Group):
    """The shape of adapters that are Kronecker products; only with algorithm LoKr."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.fullMatrix || !self.decomposeBoth",
            message="lokr.fullMatrix takes no factor apart, lokr.decomposeBoth both: set one of them to false",
            holds=lambda lokr: not (lokr.full_matrix and lokr.decompose_both),
        ),
    )

    factor: Factor = Field(
        default=16,
        description="Rows and columns of the first, small factor where they divide the layer's; the smaller, the more is "
        "trained. -1 = near the square root. LyCORIS: factor.",
    )
    full_matrix: bool = Field(
        default=False,
        description="Train the second factor whole, not as a product of lora.rank; rank and alpha have no effect then. "
        "LyCORIS: full_matrix, or a linear_dim that is large.",
    )
    decompose_both: bool = Field(
        default=False, description="Make the first factor a product of lora.rank too. LyCORIS: decompose_both."
    )
    factors: Annotated[tuple[LokrFactor, ...], Field(max_length=16)] = Field(
        default=(), description="Other factors for some of the targets; the first entry that names a layer counts."
    )


class Lora(Group):
    """Small adapters beside frozen weights; only with method LoRA."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "lokr",
            setting="algorithm",
            allowed=("LoKr",),
            message="lora.lokr needs lora.algorithm: LoKr; set it, or remove lokr",
        ),
        Rule(
            cel="!has(self.lokr) || !self.lokr.fullMatrix || (self.rank == 16 && self.alpha == 16.0)",
            message="lora.lokr.fullMatrix has no rank: leave lora.rank and lora.alpha at their defaults, or set "
            "fullMatrix to false",
            holds=lambda lora: lora.lokr is None or not lora.lokr.full_matrix or (lora.rank, lora.alpha) == (16, 16),
        ),
    )

    algorithm: AdapterAlgorithm = Field(
        default=AdapterAlgorithm.LORA,
        description="LoRA = a product of two narrow matrices, LoKr = a Kronecker product, as LyCORIS has it. SimpleTuner: "
        "lora_type, and algo of lycoris_config.",
    )
    rank: Annotated[StrictInt, Field(ge=1, le=1024)] = Field(default=16, description="Rank. SimpleTuner: lora_rank.")
    alpha: Annotated[StrictFloat, Field(gt=0, le=4096)] = Field(
        default=16, description="Scale of the update is alpha / rank. SimpleTuner: lora_alpha."
    )
    dropout: Probability = Field(default=0, description="Dropout before the adapters. SimpleTuner: lora_dropout.")
    targets: Targets = Field(
        default=(),
        description="Modules that get an adapter: ends of their names, such as attn.to_q, or presets: all (attention), "
        "all+ffs (and feed-forward), mmdit, context and others of SimpleTuner's; absent = all+ffs. Flux2: all (the default), "
        "attention, mlp, tiny. "
        "SimpleTuner: flux_lora_target.",
    )
    quantize_base: QuantizeBase = Field(
        default=QuantizeBase.NONE,
        description="Format of the frozen weights of all blocks; arithmetic stays bfloat16. SimpleTuner: "
        "base_model_precision.",
    )
    lokr: Lokr | None = Field(default=None, description="With algorithm LoKr; absent = its defaults.")
