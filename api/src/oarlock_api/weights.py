"""Which model is trained, where its weights come from, and which of its parameters move."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.location import S3Location
from oarlock_api.primitives import AbsolutePath, Probability, Word
from oarlock_api.rules import ListSet, Rule, exactly_one
from oarlock_api.secret_refs import SecretKeyRef

RepositoryName = Annotated[
    str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._]*(/[A-Za-z0-9][-A-Za-z0-9._]*)?$")
]


class ModelFamily(StrEnum):
    """Architectures that can be trained."""

    FLUX1 = "Flux1"


class ModelFlavor(StrEnum):
    """Variants of an architecture."""

    DEV = "Dev"
    SCHNELL = "Schnell"
    KREA = "Krea"


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


class HubModel(Group):
    """A repository of a model hub, downloaded once per node."""

    repo: RepositoryName = Field(description="Repository, such as owner/name.")
    revision: Word | None = Field(default=None, description="Commit, tag or branch; absent = the main branch.")
    token_secret_ref: SecretKeyRef | None = Field(default=None, description="Secret with the access token.")


class Model(Group):
    """The base model, in the layout of diffusers."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one("path", "s3", "hub", message="say where the model lies: set exactly one of path, s3 and hub"),
    )

    family: ModelFamily = Field(description="Architecture. SimpleTuner: model_family.")
    flavor: ModelFlavor = Field(default=ModelFlavor.DEV, description="Variant. SimpleTuner: model_flavour.")
    path: AbsolutePath | None = Field(
        default=None,
        description="Absolute path in the pod. SimpleTuner: pretrained_model_name_or_path.",
    )
    s3: S3Location | None = Field(default=None, description="A prefix of an S3 or R2 bucket.")
    hub: HubModel | None = Field(default=None, description="A repository of a model hub.")


class Lora(Group):
    """Low-rank adapters; only with method LoRA."""

    rank: Annotated[StrictInt, Field(ge=1, le=1024)] = Field(default=16, description="Rank. SimpleTuner: lora_rank.")
    alpha: Annotated[StrictFloat, Field(gt=0, le=4096)] = Field(
        default=16, description="Scale of the update is alpha / rank. SimpleTuner: lora_alpha."
    )
    dropout: Probability = Field(default=0, description="Dropout before the adapters. SimpleTuner: lora_dropout.")
    targets: Annotated[tuple[Word, ...], Field(max_length=64), ListSet()] = Field(
        default=(),
        description="Modules that get an adapter: ends of their names, such as attn.to_q, or presets: all (attention), "
        "all+ffs (and feed-forward), mmdit, context and others of SimpleTuner's; absent = all+ffs. "
        "SimpleTuner: flux_lora_target.",
    )
    quantize_base: QuantizeBase = Field(
        default=QuantizeBase.NONE,
        description="Format of the frozen weights of all blocks; arithmetic stays bfloat16. SimpleTuner: "
        "base_model_precision.",
    )
