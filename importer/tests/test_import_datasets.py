"""Data sets: sources, captions, crops, sizes, latents, and how often each is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def dataset(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> Callable[..., dict[str, Any]]:
    """The one data set of a job, with some keys changed."""

    def call(**changed: Any) -> dict[str, Any]:
        found: dict[str, Any] = imported(simple, folder | changed).spec["training"]["data"]["datasets"][0]
        return found

    return call


def test_defaults_of_simpletuner_are_written_into_each_data_set(dataset: Callable[..., dict[str, Any]]) -> None:
    assert dataset(caption_strategy=None) == {
        "name": "boats",
        "role": "Train",
        "source": {"path": "/output/data/boats"},
        "metadata": {"discovery": {}},
        "captions": {"strategy": "Filename"},
        "imageEmbeds": {"mode": "Cache"},
        "resolution": 1024,
        "resolutionType": "PixelArea",
        "crop": {"aspect": "Preserve", "style": "Random"},
        "repeats": 0,
        "preserveScan": False,
        "randomFlip": False,
    }


@pytest.mark.parametrize(
    ("changed", "captions"),
    [
        ({"caption_strategy": "instanceprompt", "instance_prompt": "a boat"}, {"strategy": "Fixed", "text": "a boat"}),
        ({"only_instance_prompt": True, "instance_prompt": "a boat"}, {"strategy": "Fixed", "text": "a boat"}),
        (
            {"prepend_instance_prompt": True, "instance_prompt": "a boat"},
            {"strategy": "TextFile", "lines": "Drawn", "prepend": "a boat"},
        ),
        ({"instance_prompt": "a boat"}, {"strategy": "TextFile", "lines": "Drawn"}),
        ({"disable_multiline_split": True}, {"strategy": "TextFile", "lines": "Joined"}),
        ({"caption_strategy": "filename", "disable_multiline_split": True}, {"strategy": "Filename"}),
    ],
)
def test_captions(changed: dict[str, Any], captions: dict[str, Any], dataset: Callable[..., dict[str, Any]]) -> None:
    assert dataset(**changed)["captions"] == captions


@pytest.mark.parametrize(
    ("changed", "crop"),
    [
        ({"crop": True}, {"aspect": "Square", "style": "Random"}),
        ({"crop": False}, {"aspect": "Preserve", "style": "Random"}),
        ({"crop": False, "crop_style": "center", "crop_aspect": "square"}, {"aspect": "Preserve", "style": "Center"}),
        ({"crop": True, "crop_aspect": "preserve", "crop_style": "centre"}, {"aspect": "Preserve", "style": "Center"}),
        (
            {"crop": True, "crop_aspect": "closest", "crop_style": "corner", "crop_aspect_buckets": [1, 0.75]},
            {"aspect": "Closest", "style": "Corner", "aspects": [1, 0.75]},
        ),
    ],
)
def test_crops(changed: dict[str, Any], crop: dict[str, Any], dataset: Callable[..., dict[str, Any]]) -> None:
    assert dataset(**changed)["crop"] == crop


def test_sizes_are_in_the_unit_of_the_resolution(dataset: Callable[..., dict[str, Any]]) -> None:
    found = dataset(
        resolution=1.0,
        resolution_type="area",
        minimum_image_size=0.5,
        maximum_image_size=4,
        target_downsample_size=2,
        max_upscale_threshold=0.2,
    )
    assert (found["resolution"], found["resolutionType"]) == (1, "Area")
    assert found["size"] == {"minimum": 0.5, "maximum": 4, "downsampleTo": 2, "maximumUpscalePercent": 20}


def test_a_small_size_is_in_megapixels_for_all_data_sets_and_in_pixels_for_one(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    of_all = imported(simple | {"minimum_image_size": 0.25}, folder)
    assert of_all.spec["training"]["data"]["datasets"][0]["size"] == {"minimum": 500}
    own = imported(simple, folder | {"minimum_image_size": 0.25})
    assert "size" not in own.spec["training"]["data"]["datasets"][0]
    assert "for pixels" in own.ignored["minimum_image_size"]
    both = {"maximum_image_size": 1, "target_downsample_size": 1024}
    assert "such as 1000" in imported(simple, folder | both).refused["maximum_image_size"]


@pytest.mark.parametrize("where", ["options", "dataset"])
def test_a_size_to_make_smaller_to_asks_for_nothing_without_a_maximum(
    where: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    size = {"target_downsample_size": 1024}
    job = imported(simple | (size if where == "options" else {}), folder | (size if where == "dataset" else {}))
    assert "size" not in job.spec["training"]["data"]["datasets"][0]
    alone = imported(simple, folder | {"maximum_image_size": 2048})
    assert alone.refused == {"maximum_image_size": "SimpleTuner itself asks for target_downsample_size beside it"}


def test_a_minimum_of_square_crops_is_of_the_area_here(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    square = folder | {"minimum_image_size": 512, "crop": True}
    assert "of each edge" in imported(simple, square).differing["minimum_image_size"]
    by_edge = square | {"resolution_type": "pixel"}
    assert "minimum_image_size" not in imported(simple, by_edge).differing


@pytest.mark.parametrize(
    ("changed", "embeds"),
    [
        ({"cache_dir_vae": "/output/vae"}, {"mode": "Cache", "location": {"path": "/output/vae"}}),
        ({"cache_dir_vae": "cache/vae"}, {"mode": "Cache", "location": {"path": "/output/cache/vae"}}),
        ({"vae_cache_ondemand": True}, {"mode": "OnDemand"}),
        ({"vae_cache_disable": True, "cache_dir_vae": "/output/vae"}, {"mode": "OnTheFly"}),
    ],
)
def test_latents(changed: dict[str, Any], embeds: dict[str, Any], dataset: Callable[..., dict[str, Any]]) -> None:
    assert dataset(**changed)["imageEmbeds"] == embeds


@pytest.mark.parametrize(
    ("options", "changed", "role"),
    [
        ({}, {"dataset_type": "eval"}, "Evaluation"),
        ({"model_type": "lora"}, {"is_regularization_data": True}, "Regularization"),
        ({}, {"is_regularization_data": True}, "Train"),
    ],
)
def test_roles(
    options: dict[str, Any],
    changed: dict[str, Any],
    role: str,
    *,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(simple | options, folder, folder | {"id": "others"} | changed)
    assert job.spec["training"]["data"]["datasets"][1]["role"] == role


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"type": "csv", "csv_file": "list.csv", "metadata_backend": "csv"}, "type"),
        ({"dataset_type": "video"}, "video"),
        ({"instance_data_dir": None}, "instance_data_dir"),
        ({"caption_strategy": "huggingface"}, "caption_strategy"),
        ({"caption_strategy": "instanceprompt"}, "instance_prompt"),
        ({"metadata_backend": "webshart"}, "metadata_backend"),
        ({"metadata_backend": "parquet"}, "parquet"),
        ({"metadata_backend": "parquet", "parquet": {"path": "t.parquet", "width_column": "w"}}, "height_column"),
        ({"crop": True, "crop_style": "face"}, "crop_style"),
        ({"crop": True, "crop_aspect": "closest", "crop_aspect_buckets": [{"1.0": 2}]}, "crop_aspect_buckets"),
        ({"max_upscale_threshold": 0.123}, "max_upscale_threshold"),
        ({"image_embeds": "nowhere"}, "image_embeds"),
        ({"type": "aws"}, "aws_bucket_name"),
        ({"vae_cache_clear_each_epoch": True}, "vae_cache_clear_each_epoch"),
        ({"start_epoch": 3}, "start_epoch"),
        ({"conditioning_data": "masks"}, "conditioning_data"),
    ],
)
def test_what_a_data_set_cannot_be_is_refused(
    changed: dict[str, Any],
    refused: str,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    assert refused in imported(simple, folder | changed).refused


MASKS = {
    "id": "masks", "dataset_type": "conditioning", "conditioning_type": "mask", "type": "local",
    "instance_data_dir": "/output/data/masks", "resolution": 1024, "resolution_type": "pixel_area", "crop": False,
    "caption_strategy": "filename", "cache_dir_vae": "cache/masks", "minimum_image_size": 0,
}  # fmt: skip


@pytest.mark.parametrize("named", ["masks", ["masks"]])
def test_masks_become_the_conditioning_of_the_data_sets_that_name_them(
    named: Any, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(
        simple | {"masked_loss_probability": 1.0},
        folder | {"conditioning_data": named},
        folder | {"id": "more", "conditioning_data": named},
        folder | {"id": "plain"},
        MASKS,
    )
    sets = job.spec["training"]["data"]["datasets"]
    conditioning = {"source": {"path": "/output/data/masks"}, "kind": "Mask"}
    assert [one.get("conditioning") for one in sets] == [conditioning, conditioning, None]
    assert job.job.spec.training
    assert job.refused == {}


def test_masks_in_a_bucket_have_its_connection(
    imported: Callable[..., Imported], simple: dict[str, Any], r2: list[dict[str, Any]]
) -> None:
    masks = {key: value for key, value in r2[0].items() if key.startswith("aws_")} | {
        "id": "masks", "type": "aws", "dataset_type": "conditioning", "conditioning_type": "mask",
        "aws_data_prefix": "masks",
    }  # fmt: skip
    job = imported(simple, r2[0] | {"conditioning_data": "masks"}, *r2[1:], masks)
    (own,) = job.spec["training"]["data"]["datasets"]
    assert own["conditioning"]["source"]["s3"]["prefix"] == "masks"
    assert own["conditioning"]["source"]["s3"]["connection"] == own["source"]["s3"]["connection"]


def test_strict_references_of_kontext_are_its_data_sets_conditioning(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    references = MASKS | {"id": "before", "conditioning_type": "reference_strict"}
    kontext = simple | {"model_flavour": "kontext"}
    job = imported(kontext, folder | {"conditioning_data": "before"}, references)
    assert job.spec["training"]["model"]["flavor"] == "Kontext"
    (own,) = job.spec["training"]["data"]["datasets"]
    assert own["conditioning"] == {"source": {"path": "/output/data/masks"}, "kind": "Reference"}
    assert job.job.spec.training
    loose = imported(
        kontext, folder | {"conditioning_data": "before"}, references | {"conditioning_type": "reference_loose"}
    )
    assert "conditioning_type" in loose.refused


@pytest.mark.parametrize(
    ("named", "masks", "options", "refused"),
    [
        ("gone", {}, {}, "conditioning_data"),
        (["masks", "others"], {}, {}, "conditioning_data"),
        (None, {}, {}, "id"),
        ("masks", {"conditioning_type": "segmentation"}, {}, "conditioning_type"),
        ("masks", {"conditioning_type": "reference_strict"}, {}, "conditioning_type"),
        ("masks", {"conditioning_type": None}, {}, "conditioning_type"),
        ("masks", {"instance_data_dir": None}, {}, "instance_data_dir"),
        ("masks", {"source_dataset_id": "boats"}, {}, "source_dataset_id"),
        ("masks", {}, {"masked_loss_probability": 0}, "masked_loss_probability"),
        ("masks", {}, {"masked_loss_probability": 0.5}, "masked_loss_probability"),
    ],
)
def test_masks_that_would_say_something_else_are_refused(
    named: Any,
    masks: dict[str, Any],
    options: dict[str, Any],
    refused: str,
    *,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(simple | options, folder | ({"conditioning_data": named} if named else {}), MASKS | masks)
    assert refused in job.refused


def test_probabilities_become_shares_where_they_are_drawn_uniformly(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    sets = (folder | {"probability": 3}, folder | {"id": "b"}, folder | {"id": "c", "dataset_type": "eval"})
    job = imported(simple | {"data_backend_sampling": "uniform"}, *sets)
    assert [each.get("probability") for each in job.spec["training"]["data"]["datasets"]] == [0.75, 0.25, None]


@pytest.mark.parametrize("sampling", ["uniform", "auto-weighting"])
@pytest.mark.parametrize("off", [{"probability": 0}, {"probability": "0.0"}, {"disabled": True}])
def test_a_data_set_that_is_off_is_left_out_with_its_masks(
    off: dict[str, Any],
    sampling: str,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    unused = folder | {"id": "off", "conditioning_data": "masks"} | off
    job = imported(simple | {"data_backend_sampling": sampling}, folder, unused, MASKS)
    assert [each["name"] for each in job.spec["training"]["data"]["datasets"]] == ["boats"]
    assert "left out" in job.ignored["masks"]
    assert "off" in job.ignored
    both = imported(simple, folder | {"conditioning_data": "masks"}, unused, MASKS)
    assert "conditioning" in both.spec["training"]["data"]["datasets"][0]


def test_a_configuration_whose_data_sets_are_all_off_is_refused_by_its_name(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder | {"probability": 0})
    assert list(job.refused) == ["data_backend_config"]
    assert "no data set to train on" in job.refused["data_backend_config"]


def test_a_share_below_0_and_an_id_that_stands_twice_are_refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    below = imported(simple | {"data_backend_sampling": "uniform"}, folder | {"probability": -1}, folder | {"id": "b"})
    assert list(below.refused) == ["probability"]
    assert imported(simple, folder, folder).refused == {"boats": "stands twice: give each entry an id of its own"}


def test_a_reference_needs_no_dataset_type(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    references = {key: value for key, value in MASKS.items() if key != "dataset_type"}
    references |= {"id": "before", "conditioning_type": "reference_strict"}
    job = imported(simple | {"model_flavour": "kontext"}, folder | {"conditioning_data": "before"}, references)
    (own,) = job.spec["training"]["data"]["datasets"]
    assert own["conditioning"] == {"source": {"path": "/output/data/masks"}, "kind": "Reference"}


def test_placeholders_are_filled_in_as_simpletuner_does(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    own = folder | {"instance_data_dir": "data/{id}", "cache_dir_vae": "cache/{model_family}/{id}"}
    text = {"id": "text", "dataset_type": "text_embeds", "cache_dir": "{output_dir}/text", "default": True}
    data = imported(simple, own, text).spec["training"]["data"]
    assert data["datasets"][0]["source"] == {"path": "/output/data/boats"}
    assert data["datasets"][0]["imageEmbeds"]["location"] == {"path": "/output/cache/flux/boats"}
    assert data["textEmbeds"] == {"path": "/output/boats/text"}
    without = {key: value for key, value in simple.items() if key != "output_dir"}
    assert imported(without, own, text).spec["training"]["data"]["textEmbeds"] == {
        "path": "/output/simpletuner-results/text"
    }


@pytest.mark.parametrize(
    "entry",
    [
        {
            "type": "huggingface",
            "dataset_name": "a/b",
            "metadata_backend": "huggingface",
            "caption_strategy": "huggingface",
        },
        {"type": "csv", "csv_file": "list.csv", "metadata_backend": "csv", "caption_strategy": "csv"},
    ],
)
def test_an_entry_of_a_type_that_is_not_here_is_refused_by_that_alone(
    entry: dict[str, Any], imported: Callable[..., Imported], simple: dict[str, Any]
) -> None:
    assert list(imported(simple, {"id": "boats"} | entry).refused) == ["type"]


def test_keys_of_pictures_ask_for_nothing_of_text_embeddings(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    text = {"id": "text", "dataset_type": "text_embeds", "default": True, "resolution": 512, "crop": True, "repeats": 9}
    job = imported(simple, folder, text)
    assert job.refused == {}
    assert "belongs to entries of pictures" in job.ignored["crop"]


def test_weights_over_sizes_that_are_not_known_are_refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    unequal = imported(simple, folder | {"probability": 3}, folder | {"id": "b"})
    assert "uniform" in unequal.refused["probability"]
    equal = imported(simple, folder | {"probability": 0.5}, folder | {"id": "b", "probability": 0.5})
    assert "probability" not in equal.spec["training"]["data"]["datasets"][0]


def test_each_service_and_each_key_has_its_connection(
    imported: Callable[..., Imported], simple: dict[str, Any], r2: list[dict[str, Any]]
) -> None:
    other = r2[0] | {"id": "c", "aws_access_key_id": "{env:OTHER_KEY}", "aws_secret_access_key": "{env:OTHER}"}
    chain = {key: value for key, value in r2[0].items() if "key" not in key} | {
        "id": "d",
        "aws_region_name": "us-east-1",
    }
    job = imported(simple, r2[0], other, chain, *r2[1:])
    connections = job.spec["training"]["s3Connections"]
    assert [(each["name"], each["region"], each.get("credentialsSecretRef")) for each in connections] == [
        ("default", "auto", {"name": "boats-s3"}),
        ("s3-2", "auto", {"name": "boats-s3-2"}),
        ("s3-3", "us-east-1", None),
    ]
    assert "OTHER" not in job.text


def test_credentials_in_an_address_are_refused_and_not_shown(
    imported: Callable[..., Imported], simple: dict[str, Any], r2: list[dict[str, Any]]
) -> None:
    job = imported(simple, r2[0] | {"image_embeds": None, "aws_endpoint_url": "https://me:hunter2@s3.example.com"})
    assert "credentials" in job.refused["aws_endpoint_url"]
    assert "hunter2" not in job.report.text()


def test_text_embeddings_have_one_place(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    one = {"id": "one", "dataset_type": "text_embeds", "cache_dir": "/output/one"}
    two = {"id": "two", "dataset_type": "text_embeds", "cache_dir": "/output/two", "default": True}
    job = imported(simple, folder | {"text_embeds": "two"}, two)
    assert job.spec["training"]["data"]["textEmbeds"] == {"path": "/output/two"}
    assert "one place, two" in imported(simple, folder, one, two).refused["id"]
    assert imported(simple, folder, one | {"disabled": True}, two).refused == {}


@pytest.mark.parametrize(
    ("name", "text"), [("filters.txt", "arafed \n\n^a photo of\n"), ("filters.json", '["arafed ", "^a photo of"]')]
)
def test_filters_are_read_from_their_file(
    name: str, text: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    embeds = {"id": "text", "dataset_type": "text_embeds", "caption_filter_list": name}
    job = imported(simple, folder, embeds, files={name: text})
    assert job.spec["training"]["data"]["datasets"][0]["captions"]["filters"] == ["arafed ", "^a photo of"]


@pytest.mark.parametrize("filters", ["gone.txt", ["s/ship/boat/"], ["("], {"a": 1}])
def test_filters_that_cannot_be_kept_are_refused(
    filters: Any, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    embeds = {"id": "text", "dataset_type": "text_embeds", "caption_filter_list": filters}
    assert list(imported(simple, folder, embeds).refused) == ["caption_filter_list"]


def test_paths_outside_the_output_have_to_be_mounted(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder | {"instance_data_dir": "/mnt/nas/boats"})
    assert any("mount /mnt/nas/boats" in task for task in job.report.tasks)
    job = imported(simple, folder)
    assert not any("mount" in task for task in job.report.tasks)


def test_an_entry_without_a_name_or_a_type_that_is_known_is_refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    assert imported(simple, folder, {"type": "local"}).refused == {"entry 2": "has no id"}
    assert "type" in imported(simple, folder | {"type": "webshart"}).refused


CACHED, LIVE = {"textEmbeds": {"path": "/output/cache/text"}}, {"textEmbedsMode": "OnTheFly"}


@pytest.mark.parametrize(
    ("says", "data"),
    [({}, CACHED), ({"all": True}, LIVE), ({"own": True}, LIVE), ({"all": True, "own": False}, CACHED)],
)
def test_captions_that_simpletuner_does_not_cache_are_encoded_on_the_fly(
    says: dict[str, bool],
    data: dict[str, Any],
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    text = {"id": "text", "dataset_type": "text_embeds", "default": True, "type": "local", "cache_dir": "cache/text"}
    of_all, own = ({"text_cache_disable": says[who]} if who in says else {} for who in ("all", "own"))
    done = imported(simple | of_all, folder, text | own)
    assert {key: value for key, value in done.spec["training"]["data"].items() if key.startswith("text")} == data
