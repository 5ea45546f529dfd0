"""The entries of multidatabackend.json: data sets, the places of embeddings, and how often each data set is seen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from oarlock_api.weights import SEEING
from oarlock_import import captions, conditioning, crops, metadata, videos
from oarlock_import.captions import own_or_global
from oarlock_import.draft import Draft
from oarlock_import.entries import ROLES, DatasetEntry, read
from oarlock_import.places import Places, label

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_import.options import Options

_BY_SIZE = (
    "with data_backend_sampling auto-weighting it multiplies sizes that are not known here; set data_backend_sampling to "
    "uniform, or make all probabilities equal"
)


def place(
    entries: list[Any], options: Options, draft: Draft, *, places: Places, source: str, find: Callable[[str], str]
) -> list[Options]:
    """Write training.data, and return the entries of its data sets; `find` gives the text of a file that an entry names."""
    found = read(entries, options, source)
    texts = [entry for entry in found if entry.kind == "text_embeds"]
    latents = {entry.name: entry for entry in found if entry.kind == "image_embeds"}
    paired = {entry.name: entry.options for entry in found if entry.kind == conditioning.TYPE}
    sets = [entry for entry in found if entry.kind in ROLES]
    if not any(ROLES[entry.kind] == "Train" for entry in sets) and not options.report.has_refused:
        options.refused("data_backend_config", f"{source} has no data set to train on: none is there, or each is off")
    _defaults(options, draft)
    cached = _caches_text(texts, options, draft)
    home, filters = _text_embeds(texts, draft if cached else Draft(), places, find)
    drafts = [_dataset(entry, options, places=places, home=home, latents=latents, filters=filters) for entry in sets]
    given = [entry.options for entry in sets]
    model = draft.get("training.model") or {}
    for entry, written in zip(sets, drafts, strict=True):
        videos.place(entry.options, written, is_video=entry.kind == videos.TYPE, family=model.get("family"))
    conditioning.place(
        list(zip(given, drafts, strict=True)),
        options,
        paired,
        model=model,
        locate=partial(_source, places=places),
    )
    _weights(given, drafts, options)
    _evaluation(sets, options)
    for entry, written in zip(sets, drafts, strict=True):
        _settle(entry, written)
    draft.put("training.data.datasets", [each.spec for each in drafts])
    for entry in latents.values():
        for key in ("aws_data_prefix", "cache_dir"):
            entry.options.ignored(key, "cache_dir_vae of the data set says where its latents lie")
        entry.options.ignored("text_cache_disable", "the entry of dataset_type text_embeds says whether text is cached")
        entry.options.mapped("id", words="-> imageEmbeds.location of the data sets that name it")
        _settle(entry, Draft())
    for entry in found:
        if entry.kind == conditioning.SEEN:
            entry.options.mapped("id", words="with the text embeddings")
        if entry.kind in {conditioning.TYPE, conditioning.SEEN}:
            _settle(entry, Draft())
    return given


def _settle(entry: DatasetEntry, draft: Draft) -> None:
    for key in ("dataset_type", "type", "default"):
        if key in entry.options:
            entry.options.mapped(key, words="where and what the entry is")
    entry.options.ignored("disabled", "false")
    entry.options.settle(draft)


def _defaults(options: Options, draft: Draft) -> None:
    """What holds for all data sets."""
    field = "training.data"
    options.carry(draft, "compress_disk_cache", value="Gzip" if options.value("compress_disk_cache") else "None")
    repeat = options.value("allow_dataset_oversubscription")
    options.carry(draft, "allow_dataset_oversubscription", value="Repeat" if repeat else "Fail")
    draft.put(f"{field}.onMissingEmbeds", "Encode")
    for key in (
        *("minimum_image_size", "maximum_image_size", "target_downsample_size", "caption_strategy", "instance_prompt"),
        *("prepend_instance_prompt", "only_instance_prompt", "parquet_caption_column", "parquet_filename_column"),
        *("vae_cache_ondemand", "vae_cache_disable", "vae_cache_preprocess", "preserve_data_backend_cache"),
        "cache_dir_vae",
    ):
        if key in options:
            options.mapped(key, words="to the data sets that do not say it themselves")


def _caches_text(texts: list[DatasetEntry], options: Options, draft: Draft) -> bool:
    """Whether captions are encoded before training, by the entry for text embeddings or by the option for all."""
    own = _home(texts).options if texts else options
    flavor = draft.get("training.model.flavor")
    if not own_or_global(own, options, "text_cache_disable"):
        words = "-> text embeddings are cached"
    elif flavor in SEEING:
        given = own if "text_cache_disable" in own else options
        given.refused("text_cache_disable", f"{flavor} reads captions beside references, before training: remove it")
        return True
    else:
        draft.put("training.data.textEmbedsMode", "OnTheFly")
        words = "-> training.data.textEmbedsMode: OnTheFly"
        for key in ("cache_dir", "aws_data_prefix") if texts else ():
            own.ignored(key, "text embeddings are not kept")
    for given in dict.fromkeys((own, options)):
        if "text_cache_disable" in given:
            given.mapped("text_cache_disable", words=words)
    return "training.data.textEmbedsMode" not in words


def _home(texts: list[DatasetEntry]) -> DatasetEntry:
    """The one entry that counts."""
    return next((entry for entry in texts if entry.options.value("default")), texts[0])


def _text_embeds(
    texts: list[DatasetEntry], draft: Draft, places: Places, find: Callable[[str], str]
) -> tuple[str, list[str]]:
    """Name of the one place for text embeddings, and the filters that are kept with it."""
    if not texts:
        return "", []
    home = _home(texts)
    filters = captions.read_filters(home.options, find)
    for entry in texts:
        if entry is not home:
            entry.options.refused("id", f"all text embeddings lie in one place, {home.name}; remove this entry")
            for key in ("cache_dir", "aws_data_prefix", "aws_bucket_name", "aws_endpoint_url", "caption_filter_list"):
                entry.options.ignored(key, "the entry is refused")
            for key in (
                "text_cache_disable",
                "aws_region_name",
                "aws_access_key_id",
                "aws_secret_access_key",
                "aws_session_token",
            ):
                entry.options.ignored(key, "the entry is refused")
            _settle(entry, Draft())
    options, folder = home.options, home.options.value("cache_dir")
    if options.value("type") == "aws":
        location = places.bucket(
            options, "/".join(p.strip("/") for p in (options.value("aws_data_prefix"), folder) if p)
        )
    else:
        location = {"path": places.path(folder, is_made=True)} if folder else None
    if location is not None:
        draft.put("training.data.textEmbeds", location)
    for key in ("id", "cache_dir", "aws_data_prefix"):
        if key in options:
            options.mapped(key, words="-> training.data.textEmbeds")
    _settle(home, Draft())
    return home.name, filters


def _dataset(
    entry: DatasetEntry,
    options: Options,
    *,
    places: Places,
    home: str,
    latents: dict[str, DatasetEntry],
    filters: list[str],
) -> Draft:
    draft, dataset = Draft(), entry.options
    dataset.carry(draft, "id", to="name", value=label(entry.name))
    keeps, adapters = dataset.value("is_regularisation_data"), options.value("model_type") == "lora"
    role = "Regularization" if keeps and adapters else ROLES[entry.kind]
    draft.put("role", role)
    if "dataset_type" in dataset:
        dataset.mapped("dataset_type", words=f"-> role: {role}")
    if keeps and not adapters:
        dataset.ignored(
            "is_regularisation_data", "SimpleTuner itself trains on such data as on any other, but for LoRA"
        )
    elif "is_regularisation_data" in dataset:
        dataset.mapped("is_regularisation_data", words=f"-> role: {role}")
    if (location := _source(dataset, "source", places=places)) is not None:
        draft.put("source", location)
    metadata.place(dataset, options, draft, places=places, videos=entry.kind == videos.TYPE)
    captions.place(dataset, options, draft, filters=filters)
    _latents(dataset, options, draft, places=places, stores=latents)
    crops.place(dataset, options, draft)
    if "text_embeds" in dataset and dataset.value("text_embeds") != home:
        dataset.refused("text_embeds", f"all text embeddings lie in one place, {home or 'the output'}")
    elif "text_embeds" in dataset:
        dataset.mapped("text_embeds", words="-> training.data.textEmbeds")
    for key in ("end_step", "max_num_samples", "minimum_aspect_ratio", "maximum_aspect_ratio"):
        if dataset.value(key):
            dataset.carry(draft, key)
        dataset.ignored(key, "0 is no limit")
    dataset.ignored("default", "belongs to entries of embeddings")
    preserve = own_or_global(dataset, options, "preserve_data_backend_cache")
    draft.put("preserveScan", preserve)
    draft.put("randomFlip", value=False)  # SimpleTuner shows pictures as they are
    if "preserve_data_backend_cache" in dataset:
        dataset.mapped("preserve_data_backend_cache", words=f"-> preserveScan: {str(preserve).lower()}")
    return draft


def _source(dataset: Options, to: str, *, places: Places) -> dict[str, Any] | None:
    """Where the pictures of an entry lie, which becomes field `to`; None where it says no place."""
    folder, prefix = dataset.value("instance_data_dir"), dataset.value("aws_data_prefix")
    if dataset.value("type") == "aws":
        location = places.bucket(dataset, prefix or folder)
    elif folder:
        location = {"path": places.path(folder)}
    else:
        dataset.refused("instance_data_dir", "is missing")
        location = None
    for key in ("instance_data_dir", "aws_data_prefix"):
        if key in dataset:
            dataset.mapped(key, words=f"-> {to}")
    return location


def _latents(
    dataset: Options, options: Options, draft: Draft, *, places: Places, stores: dict[str, DatasetEntry]
) -> None:
    """When latents are made and where they lie."""
    ondemand = own_or_global(dataset, options, "vae_cache_ondemand") or options.value("vae_cache_preprocess") is False
    mode = "OnTheFly" if own_or_global(dataset, options, "vae_cache_disable") else "OnDemand" if ondemand else "Cache"
    draft.put("imageEmbeds.mode", mode)
    for key in ("vae_cache_ondemand", "vae_cache_disable"):
        if key in dataset:
            dataset.mapped(key, words=f"-> imageEmbeds.mode: {mode}")
    if mode == "OnTheFly":
        for key in ("image_embeds", "cache_dir_vae"):
            dataset.ignored(key, "latents are not kept")
        return
    store = dataset
    if "image_embeds" in dataset:
        if dataset.value("image_embeds") not in stores:
            dataset.refused("image_embeds", f"there is no entry {dataset.value('image_embeds')}")
            return
        store = stores[dataset.value("image_embeds")].options
        dataset.mapped("image_embeds", words="-> imageEmbeds.location")
    _home_of_latents(dataset, options, draft, places=places, store=store)


def _home_of_latents(dataset: Options, options: Options, draft: Draft, *, places: Places, store: Options) -> None:
    """Write the location in `store`: the data set's own, or the one of its image_embeds."""
    folder, location = own_or_global(dataset, options, "cache_dir_vae"), None
    if store.value("type") == "aws" and (folder or store is not dataset):
        location = places.bucket(store, folder)
    elif folder:
        location = {"path": places.path(folder, is_made=True)}
    if location is not None:
        draft.put("imageEmbeds.location", location)
    if "cache_dir_vae" in dataset:
        dataset.mapped("cache_dir_vae", words="-> imageEmbeds.location")


def _weights(datasets: list[Options], drafts: list[Draft], options: Options) -> None:
    """Probabilities: SimpleTuner's are weights, ours are shares of the steps."""
    uniform = str(options.value("data_backend_sampling")).lower() == "uniform"
    drawn = [pair for pair in zip(datasets, drafts, strict=True) if pair[1].spec["role"] != "Evaluation"]
    weights = [dataset.value("probability") for dataset, _ in drawn]
    below = [dataset for (dataset, _), weight in zip(drawn, weights, strict=True) if weight < 0]
    for dataset in below:
        dataset.refused("probability", "is below 0: write a share, such as 0.5")
    if uniform and not below and len(drawn) > 1:
        for (dataset, draft), weight in zip(drawn, weights, strict=True):
            dataset.carry(draft, "probability", value=round(weight / sum(weights), 9))
    elif len(set(weights)) > 1:
        for dataset in (one for one, _ in drawn if "probability" in one):
            dataset.refused("probability", _BY_SIZE)
    for dataset in datasets:
        dataset.ignored("probability", "all data sets have the same, so that they are drawn by size")
    if "data_backend_sampling" in options:
        options.mapped("data_backend_sampling", words="shares of the steps" if uniform else "by size")


def _evaluation(sets: list[DatasetEntry], options: Options) -> None:
    if "eval_dataset_id" not in options:
        return
    others = [entry.name for entry in sets if entry.kind == "eval" and entry.name != options.value("eval_dataset_id")]
    if others:
        options.refused("eval_dataset_id", f"every data set for evaluation is measured; remove {', '.join(others)}")
    options.mapped("eval_dataset_id", words="-> role: Evaluation")
