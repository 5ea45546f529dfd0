"""Keys of the entries of multidatabackend.json."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

_STORE: tuple[Row, ...] = (
    judged("id", "name", Kind.TEXT),
    judged("type", "source", Kind.TEXT, default="local", words={"local": "path", "aws": "s3"}),
    judged("disabled", "nothing: the entry is left out", Kind.SWITCH, default=False, aliases=("disable",)),
    judged("dataset_type", "role", Kind.TEXT, default="image"),
    judged("aws_bucket_name", "bucket", Kind.TEXT),
    judged("aws_data_prefix", "prefix", Kind.TEXT),
    judged("aws_endpoint_url", "training.s3Connections.endpoint", Kind.TEXT),
    judged("aws_region_name", "training.s3Connections.region", Kind.TEXT, default="auto"),
    judged("aws_access_key_id", "training.s3Connections.credentialsSecretRef", Kind.ANY),
    judged("aws_secret_access_key", "training.s3Connections.credentialsSecretRef", Kind.ANY),
    judged("aws_session_token", "training.s3Connections.credentialsSecretRef", Kind.ANY),
    *ignored(
        "connections of a job are pooled over all its data sets; see training.data.tuning", "aws_max_pool_connections"
    ),
    *ignored(
        "reading and writing are bounded queues of Oarlock's own",
        "write_batch_size read_batch_size text_encoder_batch_size vae_batch_size image_processing_batch_size"
        " metadata_update_interval aspect_bucket_worker_count",
    ),
    *ignored("compress_disk_cache holds for the whole job", "compress_cache"),
    *ignored("what is cached is made before training, which changes no number", "text_cache_ondemand"),
    *ignored("scans are skipped by preserve_data_backend_cache alone", "skip_file_discovery"),
    *ignored("a remark", "_comment comment description"),
)

DATASET: tuple[Row, ...] = (
    *_STORE,
    judged("instance_data_dir", "source", Kind.TEXT, aliases=("instance_data_root",)),
    judged("text_embeds", "training.data.textEmbeds", Kind.TEXT),
    *ignored("the entry of dataset_type text_embeds says whether text is cached", "text_cache_disable"),
    judged("image_embeds", "imageEmbeds.location", Kind.TEXT),
    judged("cache_dir_vae", "imageEmbeds.location", Kind.TEXT),
    judged("vae_cache_ondemand", "imageEmbeds.mode", Kind.SWITCH),
    judged("vae_cache_disable", "imageEmbeds.mode", Kind.SWITCH, aliases=("disable_vae_cache",)),
    judged("metadata_backend", "metadata", Kind.TEXT, default="discovery"),
    judged("parquet", "metadata.parquet", Kind.ANY),
    judged("caption_strategy", "captions.strategy", Kind.TEXT),
    judged("instance_prompt", "captions.text or captions.prepend", Kind.ANY),
    judged("prepend_instance_prompt", "captions.prepend", Kind.SWITCH),
    judged("only_instance_prompt", "captions.strategy", Kind.SWITCH),
    judged("disable_multiline_split", "captions.lines", Kind.SWITCH, default=False),
    judged("resolution", "resolution", Kind.NUMBER),
    judged("resolution_type", "resolutionType", Kind.TEXT),
    judged("crop", "crop.aspect", Kind.SWITCH, default=False),
    judged("crop_aspect", "crop.aspect", Kind.TEXT, default="square"),
    judged("crop_style", "crop.style", Kind.TEXT, default="random"),
    judged("crop_aspect_buckets", "crop.aspects", Kind.ANY),
    judged("minimum_image_size", "size.minimum", Kind.NUMBER),
    judged("maximum_image_size", "size.maximum", Kind.NUMBER),
    judged("target_downsample_size", "size.downsampleTo", Kind.NUMBER),
    judged("max_upscale_threshold", "size.maximumUpscalePercent", Kind.NUMBER),
    mapped("minimum_aspect_ratio", "size.minimumAspect", Kind.NUMBER),
    mapped("maximum_aspect_ratio", "size.maximumAspect", Kind.NUMBER),
    mapped("repeats", "repeats", Kind.WHOLE, default=0),
    judged("probability", "probability", Kind.NUMBER, default=1.0),
    mapped("max_num_samples", "maxSamples", Kind.WHOLE),
    mapped("start_step", "startStep", Kind.WHOLE),
    judged("end_step", "endStep", Kind.WHOLE),
    judged("preserve_data_backend_cache", "preserveScan", Kind.SWITCH),
    judged("is_regularisation_data", "role", Kind.SWITCH, default=False, aliases=("is_regularization_data",)),
    *refused("windows are said in steps: set start_step", "start_epoch", unless=(0, 1)),
    *refused("windows are said in steps: set end_step", "end_epoch", unless=(0,)),
    *refused(
        "a latent is made once: set it to false, or vae_cache_disable to true to crop anew each time",
        "vae_cache_clear_each_epoch",
    ),
    *ignored("the entry of dataset_type text_embeds says where they lie", "cache_dir_text"),
    *ignored("what a picture's entry caches is named by its content", "cache_file_suffix"),
    *refused("all data sets share training.batchSize", "train_batch_size"),
    *refused(
        "all data sets share the noise levels", "timestep_offset timestep_sampling_offset slider_strength", unless=(0,)
    ),
    *refused("windows are said in steps: set end_step", "disable_after_epoch_step", unless=(0,)),
    *refused("boxes are not used", "grounding grounding_data", unless=({},)),
    *refused("captions are drawn as they are", "caption_shuffle"),
    *refused("filters belong to the entry of dataset_type text_embeds", "caption_filter_list", unless=([],)),
    judged("conditioning_data", "conditioning", Kind.ANY),
    *ignored("what is seen of a reference lies with the text embeddings", "conditioning_image_embeds"),
    *refused(
        "none are made of the pictures: name an entry of dataset_type conditioning in conditioning_data",
        "conditioning conditioning_config",
    ),
    *refused("it belongs to an entry of dataset_type conditioning", "source_dataset_id"),
    *ignored("it makes the entry one of masks or references", "conditioning_type"),
    judged("video", "video", Kind.ANY),
    *refused("pictures and videos only, no sound", "audio s2v_datasets", unless=([],)),
    *ignored(
        "belongs to entries of another type",
        "csv csv_file csv_cache_dir csv_url_column csv_caption_column csv_hash_filenames csv_shorten_filenames huggingface"
        " dataset_name webshart webshart_optimize_captions webshart_optimise_captions caption_file_extensions"
        " distillation_type",
    ),
    *ignored("belongs to entries of embeddings", "default cache_dir cache_dir_conditioning_image_embeds"),
    *ignored(
        "reading and writing are bounded queues of Oarlock's own",
        "memory_filesystem_sudo memory_filesystem_size memory_filesystem_path conditioning_image_embed_batch_size",
    ),
    *refused("no classifier filters pictures here", "nsfw nsfw_filter nsfw_detection"),
    *ignored(
        "caches are keyed by content",
        "hash_filenames shorten_filenames scan_for_errors vae_cache_scan_behaviour ignore_epochs",
    ),
    *ignored("pictures for validation come from prompts", "disable_validation"),
    *ignored(
        "pictures are never deleted; what cannot be used is listed",
        "delete_unwanted_images delete_problematic_images delete_nsfw_images",
    ),
)

CONDITIONING: tuple[Row, ...] = (
    *_STORE,
    judged("instance_data_dir", "conditioning.source", Kind.TEXT, aliases=("instance_data_root",)),
    judged(
        "conditioning_type", "conditioning.kind", Kind.TEXT, words={"mask": "Mask", "reference_strict": "Reference"}
    ),
    *ignored(
        "it is cut, flipped and cached as its picture is, and seen as often",
        "resolution resolution_type crop crop_aspect crop_style crop_aspect_buckets minimum_image_size maximum_image_size"
        " target_downsample_size max_upscale_threshold minimum_aspect_ratio maximum_aspect_ratio repeats probability"
        " max_num_samples start_step end_step start_epoch end_epoch cache_dir_vae vae_cache_ondemand vae_cache_disable"
        " disable_vae_cache vae_cache_clear_each_epoch image_embeds cache_file_suffix cache_dir_text default cache_dir",
    ),
    *ignored(
        "captions are those of the pictures",
        "caption_strategy instance_prompt prepend_instance_prompt only_instance_prompt text_embeds text_cache_disable",
    ),
    *ignored("they are found by the names of their pictures", "metadata_backend parquet preserve_data_backend_cache"),
    *ignored(
        "caches are keyed by content",
        "hash_filenames shorten_filenames scan_for_errors vae_cache_scan_behaviour ignore_epochs",
    ),
    *refused("they belong to the entry whose conditioning_data names them", "source_dataset_id"),
    *refused("these are pictures, of which none are made", "conditioning conditioning_data conditioning_config"),
    *refused("pictures only, no video or sound", "video audio"),
    *ignored("pictures for validation come from prompts", "disable_validation"),
    *ignored(
        "pictures are never deleted; what cannot be used is listed", "delete_unwanted_images delete_problematic_images"
    ),
)


def _beyond(*rows: Row) -> str:
    """Names of a data set's keys that a table of these rows does not have."""
    known = {name for row in rows for name in (row.key, *row.aliases)}
    return " ".join(name for row in DATASET for name in (row.key, *row.aliases) if name not in known)


_OF_PICTURES = "belongs to entries of pictures"
_SEEN: tuple[Row, ...] = (
    *_STORE,
    *ignored("what is seen of a reference lies with the text embeddings", "default cache_dir"),
)
SEEN: tuple[Row, ...] = (*_SEEN, *ignored(_OF_PICTURES, _beyond(*_SEEN)))

PARQUET: tuple[Row, ...] = (
    judged("path", "metadata.parquet.location", Kind.TEXT),
    judged("filename_column", "metadata.parquet.filenameColumn", Kind.TEXT, default="id"),
    judged("caption_column", "metadata.parquet.captionColumns", Kind.ANY, default="description"),
    mapped("width_column", "metadata.parquet.widthColumn", Kind.TEXT),
    mapped("height_column", "metadata.parquet.heightColumn", Kind.TEXT),
    mapped("fallback_caption_column", "metadata.parquet.fallbackCaptionColumn", Kind.TEXT),
    mapped("identifier_includes_extension", "metadata.parquet.filenameHasExtension", Kind.SWITCH, default=False),
    *ignored("the aspect is width / height", "aspect_ratio_column"),
    mapped("num_frames_column", "metadata.parquet.framesColumn", Kind.TEXT),
    mapped("fps_column", "metadata.parquet.fpsColumn", Kind.TEXT),
    *refused(
        "pictures and videos only, no sound",
        "audio_column lyrics_column sample_rate_column duration_column num_channels_column",
    ),
    *refused("boxes are not used", "bbox_column"),
)

VIDEO: tuple[Row, ...] = (
    judged("num_frames", "video.frames", Kind.WHOLE, default=125),
    judged("min_frames", "video.minFrames", Kind.WHOLE),
    judged("max_frames", "video.frames", Kind.WHOLE),
    judged(
        "bucket_strategy",
        "video.minFrames, video.frameInterval",
        Kind.TEXT,
        default="aspect_ratio",
        words={"aspect_ratio": "one length", "resolution_frames": "several lengths"},
    ),
    judged("frame_interval", "video.frameInterval", Kind.WHOLE, default=1),
    *refused("models are given a text alone, no first frame", "is_i2v"),
)

_EMBEDS: tuple[Row, ...] = (
    *_STORE,
    judged("default", "training.data.textEmbeds", Kind.SWITCH, default=False),
    judged("cache_dir", "training.data.textEmbeds", Kind.TEXT),
    judged("text_cache_disable", "training.data.textEmbedsMode", Kind.SWITCH),
    judged("caption_filter_list", "training.data.datasets.captions.filters", Kind.ANY),
    *ignored("scans are skipped by the preserve_data_backend_cache of each data set", "preserve_data_backend_cache"),
    *ignored("where latents lie is said by cache_dir_vae of each data set", "instance_data_dir instance_data_root"),
)
EMBEDS: tuple[Row, ...] = (*_EMBEDS, *ignored(_OF_PICTURES, _beyond(*_EMBEDS)))

WEBHOOK: tuple[Row, ...] = (
    judged("webhook_type", "type", Kind.TEXT, words={"raw": "Raw", "discord": "Discord"}),
    judged("callback_url", "urlSecretRef", Kind.ANY),
    judged("webhook_url", "urlSecretRef", Kind.ANY),
    judged("auth_token", "authSecretRef", Kind.ANY),
    mapped("message_prefix", "messagePrefix", Kind.TEXT),
    mapped(
        "log_level",
        "minLevel",
        Kind.TEXT,
        default="info",
        words={word.lower(): word for word in ("Debug", "Info", "Warning", "Error", "Critical")},
    ),
    *refused("certificates are verified; SSL_CERT_FILE in pod.env names an authority of your own", "ssl_no_verify"),
)
