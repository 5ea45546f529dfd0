"""One data set: its pictures, metadata, captions, cached latents, crops, and how often it is seen."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from oarlock_api.group import Group
from oarlock_api.location import Location
from oarlock_api.primitives import Label, LongText, Probability, Step, Text, Word
from oarlock_api.rules import Rule, exactly_one, only_when, ordered
from oarlock_api.videos import Video

Size = Annotated[StrictFloat, Field(gt=0, le=16384)]
Aspect = Annotated[StrictFloat, Field(gt=0, le=100)]


class Role(StrEnum):
    """What a data set is for."""

    TRAIN = "Train"
    EVALUATION = "Evaluation"
    REGULARIZATION = "Regularization"


class ResolutionType(StrEnum):
    """What a resolution measures."""

    PIXEL_AREA = "PixelArea"
    PIXEL = "Pixel"
    AREA = "Area"


class CaptionStrategy(StrEnum):
    """Where captions come from."""

    FILENAME = "Filename"
    TEXT_FILE = "TextFile"
    PARQUET = "Parquet"
    FIXED = "Fixed"


class CaptionLines(StrEnum):
    """What the lines of a caption file are."""

    JOINED = "Joined"
    DRAWN = "Drawn"


class EmbedMode(StrEnum):
    """When latents are made and whether they are kept."""

    CACHE = "Cache"
    ON_DEMAND = "OnDemand"
    ON_THE_FLY = "OnTheFly"


class CropAspect(StrEnum):
    """Which aspect a crop gets."""

    PRESERVE = "Preserve"
    SQUARE = "Square"
    CLOSEST = "Closest"
    RANDOM = "Random"


class CropStyle(StrEnum):
    """Which part of a picture a crop keeps."""

    CENTER = "Center"
    RANDOM = "Random"
    CORNER = "Corner"


class ConditioningKind(StrEnum):
    """What the second picture of a pair says."""

    MASK = "Mask"
    REFERENCE = "Reference"


class Discovery(Group):
    """List the source and read the header of every picture."""


class Parquet(Group):
    """A table of the pictures: the table says which pictures belong to the data set."""

    location: Location = Field(description="The table: .parquet or .jsonl. SimpleTuner: parquet.path.")
    filename_column: Word = Field(
        default="filename", description="Path below the source. SimpleTuner: filename_column."
    )
    width_column: Word = Field(default="width", description="Width in pixels. SimpleTuner: width_column.")
    height_column: Word = Field(default="height", description="Height in pixels. SimpleTuner: height_column.")
    caption_columns: Annotated[tuple[Word, ...], Field(min_length=1, max_length=16)] = Field(
        default=("caption",),
        description="Captions, in order; of several, one is drawn per pass. SimpleTuner: caption_column.",
    )
    fallback_caption_column: Word | None = Field(
        default=None, description="Used where the others are empty. SimpleTuner: fallback_caption_column."
    )
    filename_has_extension: StrictBool = Field(
        default=True, description="File names carry their extension. SimpleTuner: identifier_includes_extension."
    )
    frames_column: Word | None = Field(
        default=None, description="With video: frames of the file; absent = frames. SimpleTuner: num_frames_column."
    )
    fps_column: Word | None = Field(
        default=None, description="With video: frames a second of the file; absent = fps. SimpleTuner: fps_column."
    )


class Metadata(Group):
    """Where widths, heights and captions come from."""

    admission: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "discovery",
            "parquet",
            message="set exactly one of metadata.discovery and metadata.parquet, or leave metadata out (discovery)",
        ),
    )

    discovery: Discovery | None = Field(
        default=None, description="List the source, read every header once. SimpleTuner: metadata_backend discovery."
    )
    parquet: Parquet | None = Field(default=None, description="Read a table. SimpleTuner: metadata_backend parquet.")


class Captions(Group):
    """The text of each picture."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.text) == (self.strategy == 'Fixed')",
            message="captions.text belongs to captions.strategy: Fixed: set both or neither",
            holds=lambda captions: (captions.text is not None) == (captions.strategy == CaptionStrategy.FIXED),
        ),
        only_when(
            "lines",
            setting="strategy",
            allowed=("TextFile",),
            message="captions.lines says what the lines of text files are: remove it, or use captions.strategy: TextFile",
        ),
    )

    strategy: CaptionStrategy = Field(
        default=CaptionStrategy.TEXT_FILE,
        description="Filename, TextFile (photo.txt beside photo.png), Parquet (the table's columns) or Fixed (one text "
        "for all). SimpleTuner: caption_strategy.",
    )
    lines: CaptionLines | None = Field(
        default=None,
        description="What the lines of a text file are: Joined (together one caption; absent = Joined) or Drawn (each a "
        "caption, of which one is drawn per pass). SimpleTuner: Drawn; with disable_multiline_split Joined.",
    )
    text: LongText | None = Field(
        default=None, description="The caption with strategy Fixed. SimpleTuner: instance_prompt."
    )
    prepend: Text | None = Field(
        default=None, description="Text before each caption. SimpleTuner: prepend_instance_prompt."
    )
    filters: Annotated[tuple[Text, ...], Field(max_length=256)] = Field(
        default=(), description="Regular expressions; what they match is cut. SimpleTuner: caption_filter_list."
    )


class DatasetEmbeds(Group):
    """The latents of this data set."""

    admission: ClassVar[tuple[Rule, ...]] = (
        only_when(
            "location",
            setting="mode",
            allowed=("Cache", "OnDemand"),
            message="imageEmbeds.mode OnTheFly stores nothing: remove imageEmbeds.location, or use Cache or OnDemand",
        ),
    )

    mode: EmbedMode = Field(
        default=EmbedMode.CACHE,
        description="Cache = encode all before training, OnDemand = when first needed, OnTheFly = always anew. "
        "SimpleTuner: vae_cache_ondemand, vae_cache_disable.",
    )
    location: Location | None = Field(
        default=None,
        description="Where they are cached; absent = data.imageEmbeds. SimpleTuner: cache_dir_vae.",
    )


class Conditioning(Group):
    """A second picture for each picture of a data set: the one of the same path below its own source, but for the ending."""

    source: Location = Field(
        description="The second pictures: masks/a/1.png for photos/a/1.jpg. A folder or prefix of their own, outside of the "
        "data set's. SimpleTuner: conditioning_data."
    )
    kind: ConditioningKind = Field(
        description="Mask = where the picture counts in the loss: white does, black does not, grey by its share. It is cut "
        "and flipped as its picture is. Reference = what the model is given beside the noise, in its picture's shape and cut "
        "as that: of Flux1's Kontext, Canny and Depth, of Flux2 and of QwenImage's Edit; Flux1's Fill fills in what is "
        "transparent in it. "
        "SimpleTuner: conditioning_type mask, reference_strict."
    )


class Crop(Group):
    """How a picture is cut to its bucket."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.aspects) && self.aspects.size() > 0) == (self.aspect in ['Closest', 'Random'])",
            message="crop.aspects is the list that crop.aspect Closest and Random choose from: set both or neither",
            holds=lambda crop: bool(crop.aspects) == (crop.aspect in {CropAspect.CLOSEST, CropAspect.RANDOM}),
        ),
    )

    aspect: CropAspect = Field(default=CropAspect.PRESERVE, description="Aspect of the crop. SimpleTuner: crop_aspect.")
    style: CropStyle = Field(default=CropStyle.CENTER, description="Which part is kept. SimpleTuner: crop_style.")
    aspects: Annotated[tuple[Aspect, ...], Field(max_length=64)] = Field(
        default=(),
        description="Aspects (width / height) for Closest and Random. SimpleTuner: crop_aspect_buckets.",
    )


class SizeLimits(Group):
    """Which pictures are taken, in the unit of the resolution."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.maximum) == has(self.downsampleTo)",
            message="size.maximum and size.downsampleTo belong together: larger pictures are scaled down to it",
            holds=lambda size: (size.maximum is None) == (size.downsample_to is None),
        ),
        ordered("downsample_to", "maximum", message="size.downsampleTo is above size.maximum; lower it"),
        ordered("minimum", "maximum", message="size.minimum is above size.maximum: no picture is left; lower it"),
        ordered(
            "minimum_aspect",
            "maximum_aspect",
            message="size.minimumAspect is above size.maximumAspect: no picture is left; lower it",
        ),
    )

    minimum: Size | None = Field(
        default=None, description="Smaller pictures are left out. SimpleTuner: minimum_image_size."
    )
    maximum: Size | None = Field(
        default=None,
        description="Larger pictures are first scaled down to downsampleTo, and the crop is cut from that. SimpleTuner: "
        "maximum_image_size.",
    )
    downsample_to: Size | None = Field(default=None, description="SimpleTuner: target_downsample_size.")
    maximum_upscale_percent: Annotated[StrictInt, Field(ge=0, le=1000)] | None = Field(
        default=None,
        description="Pictures that would have to grow by more percent than this are left out. SimpleTuner: "
        "max_upscale_threshold (a fraction).",
    )
    minimum_aspect: Aspect | None = Field(
        default=None,
        description="Pictures with a smaller width / height are left out. SimpleTuner: minimum_aspect_ratio.",
    )
    maximum_aspect: Aspect | None = Field(
        default=None,
        description="Pictures with a larger width / height are left out. SimpleTuner: maximum_aspect_ratio.",
    )


class Dataset(Group):
    """One data set."""

    admission: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.captions.strategy != 'Parquet' || (has(self.metadata) && has(self.metadata.parquet))",
            message="captions.strategy: Parquet reads the captions from metadata.parquet; add it, or use TextFile",
            holds=lambda dataset: (
                dataset.captions.strategy != CaptionStrategy.PARQUET
                or (dataset.metadata is not None and dataset.metadata.parquet is not None)
            ),
        ),
        ordered("start_step", "end_step", message="startStep is above endStep: the data set is never used; swap them"),
        Rule(
            cel="has(self.resolution) == has(self.resolutionType)",
            message="resolution and resolutionType of a data set belong together: set both or neither",
            holds=lambda dataset: (dataset.resolution is None) == (dataset.resolution_type is None),
        ),
        Rule(
            cel="!self.randomFlip || self.role != 'Evaluation'",
            message="randomFlip is for what is trained on, a data set with role: Evaluation is shown as it is: remove it",
            holds=lambda dataset: not dataset.random_flip or dataset.role != Role.EVALUATION,
        ),
        Rule(
            cel="!has(self.video) || !has(self.conditioning)",
            message="masks and references are for pictures: remove conditioning, or video",
            holds=lambda dataset: dataset.video is None or dataset.conditioning is None,
        ),
    )

    name: Label = Field(
        description="Name of this data set. Part of no cache key: renaming re-encodes nothing. SimpleTuner: id."
    )
    role: Role = Field(
        default=Role.TRAIN,
        description="Train, Evaluation (its loss is told after each checkpoint, it is never trained on) or Regularization "
        "(with LoRA: adapters learn to leave these pictures as the base model has them). SimpleTuner: dataset_type eval, "
        "is_regularisation_data.",
    )
    source: Location = Field(
        description="The pictures, or with video the videos. SimpleTuner: type, instance_data_dir, aws_data_prefix."
    )
    video: Video | None = Field(
        default=None,
        description="The source holds videos instead, and these of their frames are learnt; {} = the defaults. SimpleTuner: "
        "dataset_type video.",
    )
    conditioning: Conditioning | None = Field(
        default=None, description="A second picture for each: a mask of what counts, or a reference."
    )
    metadata: Metadata | None = Field(
        default=None,
        description="Where sizes and captions come from; absent = discovery. SimpleTuner: metadata_backend.",
    )
    captions: Captions = Field(default=Captions(), description="The text of each picture.")
    image_embeds: DatasetEmbeds = Field(
        default=DatasetEmbeds(), description="When latents are made and where they are cached."
    )
    resolution: Size | None = Field(default=None, description="Overrides training.resolution. SimpleTuner: resolution.")
    resolution_type: ResolutionType | None = Field(
        default=None, description="Overrides training.resolutionType. SimpleTuner: resolution_type."
    )
    crop: Crop = Field(default=Crop(), description="How pictures are cut to their bucket. SimpleTuner: crop.")
    random_flip: StrictBool = Field(
        default=False,
        description="Show each picture mirrored, left for right, in half of the draws. Cached latents are then made of both "
        "ways. Captions stay: leave it off where these say left or right, or pictures hold text. diffusers: random_flip.",
    )
    size: SizeLimits = Field(default=SizeLimits(), description="Which pictures are taken.")
    repeats: Annotated[StrictInt, Field(ge=0, le=1_000_000)] = Field(
        default=0,
        description="Extra passes per epoch; 0 = each sample once. SimpleTuner: repeats.",
    )
    probability: Probability | None = Field(
        default=None,
        description="Share of the steps that draw from this data set; absent = by size, within what the others leave. Where "
        "all have one, they are taken in proportion. SimpleTuner: probability.",
    )
    max_samples: Annotated[StrictInt, Field(ge=1, le=10_000_000_000)] | None = Field(
        default=None, description="Take at most so many samples, chosen by the seed. SimpleTuner: max_num_samples."
    )
    start_step: Step | None = Field(
        default=None,
        description="First optimizer step that may draw from it, counted from 1. SimpleTuner: start_step.",
    )
    end_step: Step | None = Field(
        default=None, description="Last optimizer step that may draw from it. SimpleTuner: end_step."
    )
    preserve_scan: StrictBool = Field(
        default=False,
        description="Trust the scan of an earlier run, of this output or beside the same imageEmbeds, instead of looking "
        "at the source again. SimpleTuner: preserve_data_backend_cache.",
    )

    def has(self, kind: ConditioningKind) -> bool:
        """Whether each picture has a pair of this kind."""
        return self.conditioning is not None and self.conditioning.kind is kind
