"""What is trained on: data sets, where their metadata, captions and embeddings lie, how they fall into buckets."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from oarlock_api.dataset import Dataset
from oarlock_api.group import Group
from oarlock_api.location import Location
from oarlock_api.primitives import Quantity
from oarlock_api.rules import ListMap, Rule, only_when


class Compression(StrEnum):
    """Compression of cached embeddings."""

    NONE = "None"
    GZIP = "Gzip"
    ZSTD = "Zstd"


class TextEmbedsMode(StrEnum):
    """When text embeddings are made and whether they are kept."""

    CACHE = "Cache"
    ON_THE_FLY = "OnTheFly"


class OnMissingEmbeds(StrEnum):
    """What training does about a sample whose embeddings are not cached."""

    ENCODE = "Encode"
    FAIL = "Fail"


class SmallBuckets(StrEnum):
    """What happens to a bucket with less than one optimizer step."""

    FAIL = "Fail"
    REPEAT = "Repeat"


class DataTuning(Group):
    """Speed of the data path; each is the planner's choice when absent."""

    vae_batch_size: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Pictures per VAE call; a video has one of its own. SimpleTuner: vae_batch_size.",
    )
    text_batch_size: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Captions per text encoder call. SimpleTuner: text_encoder_batch_size."
    )
    workers: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Threads per node that read and decode. SimpleTuner: max_workers."
    )
    s3_max_connections: Annotated[StrictInt, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Open connections per node to an S3 service. SimpleTuner: aws_max_pool_connections."
    )
    s3_cache: Quantity | None = Field(
        default=None,
        description="Room on each node's own disk (the pod's /tmp) for embeddings that lie in S3, such as 500Gi; absent = "
        "none. Worth it where all of them fit: only the first epoch then reads from S3.",
    )


class Data(Group):
    """All data of a job."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.datasets.exists(d, !has(d.role) || d.role != 'Regularization')",
            message="data.datasets holds regularization data only; add a data set with role: Train or Evaluation",
            holds=lambda data: any(dataset.role != "Regularization" for dataset in data.datasets),
        ),
        only_when(
            "text_embeds",
            setting="text_embeds_mode",
            allowed=("Cache",),
            message="data.textEmbedsMode OnTheFly stores nothing: remove data.textEmbeds, or use Cache",
        ),
    )

    text_embeds: Location | None = Field(
        default=None,
        description="Where text embeddings are cached; absent = the output directory. SimpleTuner: dataset_type "
        "text_embeds.",
    )
    text_embeds_mode: TextEmbedsMode = Field(
        default=TextEmbedsMode.CACHE,
        description="Cache = encode all captions before training, OnTheFly = each time that one is drawn; the text "
        "encoders then stay with each GPU. SimpleTuner: text_cache_disable.",
    )
    image_embeds: Location | None = Field(
        default=None,
        description="Where latents of all data sets are cached; absent = the output directory. SimpleTuner: "
        "dataset_type image_embeds, cache_dir_vae.",
    )
    compression: Compression = Field(
        default=Compression.NONE,
        description="Compression of cached embeddings. SimpleTuner: compress_disk_cache.",
    )
    on_missing_embeds: OnMissingEmbeds = Field(
        default=OnMissingEmbeds.ENCODE,
        description="Encode what is not cached before training starts, or Fail: a wrong path must not keep every GPU "
        "busy with encoding.",
    )
    small_buckets: SmallBuckets = Field(
        default=SmallBuckets.FAIL,
        description="What to do with an aspect bucket that has less than one optimizer step: Fail with the remedies, "
        "or Repeat its samples as often as needed. SimpleTuner: allow_dataset_oversubscription.",
    )
    tuning: DataTuning = Field(default=DataTuning(), description="Speed of the data path.")
    datasets: Annotated[tuple[Dataset, ...], Field(min_length=1, max_length=64), ListMap("name")] = Field(
        description="The data sets. SimpleTuner: data_backend_config."
    )
