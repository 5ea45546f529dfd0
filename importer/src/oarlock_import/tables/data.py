"""Options of the data that hold for all data sets, or are their defaults."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

PER_DATASET = "data sets that do not say it themselves"
"""Where an option goes that is a default of the data sets' own."""
_OWN_SPEED = "reading and writing are bounded queues of Oarlock's own; training.data.tuning has what can be set"

DATA: tuple[Row, ...] = (
    mapped("resolution", "training.resolution", Kind.NUMBER, default=1024.0),
    mapped(
        "resolution_type",
        "training.resolutionType",
        Kind.TEXT,
        default="pixel_area",
        words={"pixel_area": "PixelArea", "pixel": "Pixel", "area": "Area"},
    ),
    judged("minimum_image_size", PER_DATASET, Kind.NUMBER),
    judged("maximum_image_size", PER_DATASET, Kind.NUMBER),
    judged("target_downsample_size", PER_DATASET, Kind.NUMBER),
    judged("caption_strategy", PER_DATASET, Kind.TEXT, default="filename"),
    judged("instance_prompt", PER_DATASET, Kind.TEXT),
    judged("prepend_instance_prompt", PER_DATASET, Kind.SWITCH, default=False),
    judged("only_instance_prompt", PER_DATASET, Kind.SWITCH, default=False),
    judged("parquet_caption_column", PER_DATASET, Kind.TEXT),
    judged("parquet_filename_column", PER_DATASET, Kind.TEXT),
    judged("vae_cache_ondemand", PER_DATASET, Kind.SWITCH, default=False),
    judged("vae_cache_disable", PER_DATASET, Kind.SWITCH, default=False),
    judged("vae_cache_preprocess", PER_DATASET, Kind.SWITCH),
    judged("preserve_data_backend_cache", PER_DATASET, Kind.SWITCH, default=False),
    judged("cache_dir_vae", PER_DATASET, Kind.TEXT),
    judged("data_backend_config", "training.data", Kind.ANY),
    judged("data_backend_sampling", "training.data.datasets.probability", Kind.TEXT, default="auto-weighting"),
    judged("compress_disk_cache", "training.data.compression", Kind.SWITCH, default=True),
    judged("allow_dataset_oversubscription", "training.data.smallBuckets", Kind.SWITCH, default=False),
    judged("eval_dataset_id", "training.data.datasets.role", Kind.TEXT),
    mapped("vae_batch_size", "training.data.tuning.vaeBatchSize", Kind.WHOLE),
    mapped("text_encoder_batch_size", "training.data.tuning.textBatchSize", Kind.WHOLE),
    mapped("max_workers", "training.data.tuning.workers", Kind.WHOLE),
    mapped("aws_max_pool_connections", "training.data.tuning.s3MaxConnections", Kind.WHOLE),
    *refused("aspects are rounded to two decimals", "aspect_bucket_rounding", unless=(2,)),
    *refused("crops are said by each data set", "crop crop_style crop_aspect"),
    *refused(
        "a missing file stops the run when there are many, and is counted when there are few", "ignore_missing_files"
    ),
    *refused("one caption is drawn as it is", "caption_shuffle"),
    *ignored(
        "sides are multiples of what SimpleTuner sets for the family, below 128 pixels of 16", "aspect_bucket_alignment"
    ),
    *ignored(
        "the length of a bucket is told before the start; no bucket is dropped in silence", "disable_bucket_pruning"
    ),
    *ignored(
        "pictures are never deleted; what cannot be used is listed", "delete_unwanted_images delete_problematic_images"
    ),
    *ignored(
        "caches are keyed by content, so that a changed setting can't meet an old entry",
        "override_dataset_config vae_cache_scan_behaviour aspect_bucket_disable_rebuild cache_clear_validation_prompts",
    ),
    *ignored("preserve_data_backend_cache is what skips a scan here", "skip_file_discovery"),
    judged("text_cache_disable", "training.data.textEmbedsMode", Kind.SWITCH, default=False),
    *ignored("what is cached is made before training, which changes no number", "text_cache_ondemand"),
    *ignored("the data set of type text_embeds says where they lie", "cache_dir_text"),
    *ignored("every caption is encoded once, whichever rank does it", "conditioning_multidataset_sampling"),
    *ignored("the VAE leaves the GPU unless it is needed", "keep_vae_loaded"),
    *ignored(
        "SimpleTuner itself reads buckets from each data set",
        "aspect_ratio_bucketing aspect_ratio_bucket_min aspect_ratio_bucket_max repeats",
    ),
    *ignored(
        _OWN_SPEED,
        "read_batch_size write_batch_size image_processing_batch_size enable_multiprocessing"
        " torch_num_threads dataloader_prefetch dataloader_prefetch_qlen aspect_bucket_worker_count"
        " metadata_update_interval",
    ),
    *ignored(
        "a log level of SimpleTuner",
        "debug_aspect_buckets debug_dataset_loader print_filenames print_sampler_statistics",
    ),
    *ignored("belongs to other models", "data_aesthetic_score"),
    *ignored("SimpleTuner itself reads it from each data set", "disable_multiline_split max_upscale_threshold"),
    *ignored("what is kept of a caption is what the model is given", "text_embed_full_cache"),
)
