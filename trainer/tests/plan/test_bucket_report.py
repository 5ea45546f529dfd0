"""The bucket report: what is in it adds up, and the picture is well-formed."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from oarlock_api.training import Training
from oarlock_trainer.data.batch_fit import Batch
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.grouping import Bucket
from oarlock_trainer.data.metadata.facts import Counts
from oarlock_trainer.data.metadata.table import TableManifest
from oarlock_trainer.plan import bucket_report

BATCH = Batch(per_rank=2, ranks=4, accumulation=1)
COUNTS = [
    Counts(dataset="a", found=40, rows=30, bad={"unreadable": 2}, left_out={"size.minimum": 8}),
    Counts(dataset="b & <c>", found=5, rows=5, bad={}, left_out={}),
]


def bucket(dataset: int, pictures: int, repeats: int) -> Bucket:
    return Bucket(dataset=dataset, size=Size(80, 48), rows=np.arange(pictures, dtype=np.uint32), repeats=repeats)


@pytest.fixture
def report() -> dict[str, Any]:
    body = {
        "model": {"family": "Flux1", "path": "/m"}, "steps": 1,
        "data": {"datasets": [
            {"name": "a", "source": {"path": "/a"}, "repeats": 1},
            {"name": "b", "source": {"path": "/b"}, "role": "Evaluation"},
        ]},
    }  # fmt: skip
    return bucket_report.describe(COUNTS, Training.model_validate(body), [bucket(0, 27, 1), bucket(0, 3, 2)], BATCH)


def test_each_bucket_says_what_it_had_before_and_what_it_has_now(report: dict[str, Any]) -> None:
    assert report["datasets"][0]["buckets"][1] == {
        "width": 80, "height": 48, "aspect": 1.67, "frames": 1, "pictures": 3, "repeatsBefore": 1, "repeats": 2,
        "samplesBefore": 6, "samples": 9, "stepsPerEpoch": 1,
    }  # fmt: skip
    assert report["stepsPerEpoch"] == 54 // 8 + 9 // 8


def test_pictures_that_are_no_rows_are_counted_by_their_reason(report: dict[str, Any]) -> None:
    first = report["datasets"][0]
    assert first["found"] == first["rows"] + sum(first["quarantined"].values()) + sum(first["leftOut"].values())


def test_a_row_that_could_not_be_encoded_is_quarantined_in_its_own_dataset() -> None:
    manifest = TableManifest(fingerprint="f", job_uid="u", datasets=("a", "b"), parts=(), left_out=(29, 30, 34))
    first, second = bucket_report._with_left_out(COUNTS, manifest)
    assert (first.rows, first.bad) == (29, {"not encodable": 1, "unreadable": 2})
    assert (second.rows, second.bad) == (3, {"not encodable": 2})


def test_the_picture_has_a_row_for_each_bucket_whatever_names_are_like(report: dict[str, Any]) -> None:
    report["datasets"][1]["name"] = "b & <c>"
    drawn = ET.fromstring(bucket_report.picture(report))  # noqa: S314 - ours
    words = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("80 x 48 (1.67)") == 2
    assert "3 x 3 (was 2), 1 steps" in words
    assert any(line.startswith("b & <c>: 5 of 5") for line in words)


def test_a_run_without_buckets_has_a_report(report: dict[str, Any]) -> None:
    ET.fromstring(bucket_report.picture(report | {"datasets": []}))  # noqa: S314 - ours


def test_buckets_of_videos_are_named_with_their_frames(report: dict[str, Any]) -> None:
    report["datasets"][0]["buckets"][0]["frames"] = 33
    assert "80 x 48 x 33 (1.67)" in bucket_report.picture(report)
