"""job.json is read strictly: an image that does not understand a job must not train it differently."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock_api.contract.job_file import MAX_BYTES, parse_job_file
from oarlock_api.contract.sections import Custom, Elastic, Ports, Preflight, Recovery
from oarlock_api.contract.wire import WireError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/v2/job.json").read_text(encoding="utf-8"))

HOOK = {"name": "chat", "url": "https://chat.example.com"}
PROGRAM = {"command": ["accelerate", "launch"], "args": ["train.py"], "workingDir": "/work"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1}, "job.json has version 1, this image knows 2: use the trainer image of the operator's release"),
        ({"version": 3}, "job.json has version 3, this image knows 2: use the trainer image of the operator's release"),
        ({"version": None}, "job.json has version None, this image knows 2"),
        ({"version": True}, "job.json has version True, this image knows 2"),
        ({"zebras": 1, "aardvarks": 2}, "does not know: aardvarks, zebras: use a newer image"),
        ({"nodes": "4"}, "wrong type: nodes"),
        ({"nodes": 4.0}, "wrong type: nodes"),
        ({"attempt": True}, "wrong type: attempt"),
        ({"training": []}, "wrong type: training"),
        ({"job": None}, "wrong type: job"),
        ({"preflight": []}, "wrong type: preflight"),
        ({"preflight": {"storage": 1}}, "wrong type: preflight.storage"),
        ({"preflight": {"tides": True}}, "does not know: preflight.tides: use a newer image"),
        ({"recovery": {"hangSeconds": "90"}}, "wrong type: recovery.hangSeconds"),
        ({"spares": "1"}, "wrong type: spares"),
        ({"elastic": {}}, "incomplete: elastic.minNodes is missing"),
        ({"ports": {"link": "9401"}}, "wrong type: ports.link"),
        ({"webhooks": {}}, "wrong type: webhooks"),
        ({"webhooks": [HOOK, "chat"]}, r"wrong type: webhooks\[1\]"),
        ({"webhooks": [{**HOOK, "zebra": 1}]}, r"does not know: webhooks\[0\].zebra: use a newer image"),
        ({"webhooks": [{**HOOK, "url": 1}]}, r"wrong type: webhooks\[0\].url"),
        ({"webhooks": [{**HOOK, "events": "all"}]}, r"wrong type: webhooks\[0\].events"),
        ({"webhooks": [{**HOOK, "events": [1]}]}, r"wrong type: webhooks\[0\].events\[0\]"),
        ({"webhooks": [{**HOOK, "authSecretRef": {"name": "a"}}]}, r"incomplete: webhooks\[0\].authSecretRef.key is"),
        ({"webhooks": [{"url": "https://a.example"}]}, r"incomplete: webhooks\[0\].name is missing"),
        ({"webhooks": [{**HOOK, "type": "Pigeon"}]}, r"does not know: webhooks\[0\].type is 'Pigeon'"),
        ({"webhooks": [{**HOOK, "minLevel": "Trace"}]}, r"does not know: webhooks\[0\].minLevel is 'Trace'"),
        ({"custom": None}, "wrong type: custom"),
        ({"training": {}, "custom": {**PROGRAM, "image": "mine"}}, "does not know: custom.image: use a newer image"),
        ({"training": {}, "custom": {"command": "train"}}, "wrong type: custom.command"),
        ({"training": {}, "custom": {**PROGRAM, "args": [1]}}, r"wrong type: custom.args\[0\]"),
        ({"training": {}, "custom": {"args": ["train.py"]}}, "incomplete: custom.command is missing"),
        ({"training": {}, "custom": {"command": []}}, "custom.command is empty"),
        ({"custom": PROGRAM}, "one trainer: it has training and custom"),
    ],
)
def test_an_unknown_version_field_or_type_is_refused_with_words_that_name_it(
    change: dict[str, object], words: str
) -> None:
    with pytest.raises(WireError, match=words):
        parse_job_file(json.dumps({**GOLDEN, **change}))


@pytest.mark.parametrize(
    "name", ["job", "job_uid", "attempt", "nodes", "gpus_per_node", "output_directory", "training"]
)
def test_a_fact_that_is_missing_is_refused_by_its_name(name: str) -> None:
    raw = {key: value for key, value in GOLDEN.items() if key != name}
    with pytest.raises(WireError, match=f"incomplete: {name} is missing"):
        parse_job_file(json.dumps(raw))


def test_facts_and_sections_with_a_default_may_be_missing() -> None:
    needed = {"version", "job", "namespace", "job_uid", "attempt", "nodes", "gpus_per_node"}
    job = parse_job_file(json.dumps({key: GOLDEN[key] for key in (*needed, "output_directory", "training")}))
    assert (job.min_free_bytes, job.previous_owner_is_gone, job.custom, job.webhooks) == (None, False, None, ())
    assert (job.ports, job.preflight, job.recovery) == (Ports(), Preflight(), Recovery())


def test_what_the_reader_takes_for_granted_is_not_written_and_read_the_same() -> None:
    needed = {"job", "namespace", "job_uid", "attempt", "nodes", "gpus_per_node", "output_directory", "training"}
    job = parse_job_file(json.dumps({key: GOLDEN[key] for key in (*needed, "version")}))
    assert json.loads(job.to_json()).keys() == needed | {"version"}
    assert parse_job_file(job.to_json()) == job
    assert "\n" not in job.to_json()


def test_every_value_of_training_is_written_because_an_image_of_another_release_may_have_other_defaults() -> None:
    training = {"task": "Train", "tracking": [], "lora": None}
    assert json.loads(replace(parse_job_file(json.dumps(GOLDEN)), training=training).to_json())["training"] == training


def test_a_job_without_a_trainer_of_its_own_is_written_as_images_know_it_that_know_no_such_trainer() -> None:
    assert "custom" not in parse_job_file(json.dumps(GOLDEN)).to_json()


def test_spares_and_sizes_of_a_round_are_told_where_the_job_has_them() -> None:
    job = parse_job_file(json.dumps(GOLDEN | {"spares": 2, "elastic": {"minNodes": 3}}))
    assert (job.spares, job.elastic) == (2, Elastic(min_nodes=3, patience_seconds=30))
    assert parse_job_file(job.to_json()) == job
    assert not {"spares", "elastic"} & json.loads(parse_job_file(json.dumps(GOLDEN)).to_json()).keys()


def test_a_program_needs_no_more_than_a_command() -> None:
    job = parse_job_file(json.dumps({**GOLDEN, "training": {}, "custom": {"command": ["train"]}}))
    assert job.custom == Custom(command=("train",))


def test_the_same_facts_are_always_the_same_text_however_they_were_ordered() -> None:
    job = parse_job_file(json.dumps(GOLDEN))
    turned = parse_job_file(json.dumps(dict(reversed(GOLDEN.items()))))
    assert job.to_json() == turned.to_json()
    assert job.to_json() != replace(job, attempt=job.attempt + 1).to_json()


@pytest.mark.parametrize(
    "body", ["", "[]", "{" * 10, " " * (MAX_BYTES + 1)], ids=["empty", "list", "broken", "too long"]
)
def test_what_is_no_job_file_is_refused(body: str) -> None:
    with pytest.raises(WireError):
        parse_job_file(body)
