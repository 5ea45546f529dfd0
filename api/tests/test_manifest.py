"""Manifests are read by kubectl's rules."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from oarlock_api.manifest import load, load_all


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-05", 1e-05),
        ("1.0e-5", 1e-05),
        ("1E5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-3", -3),
        ("0", 0),
        ("0x1f", 31),
        ("0o17", 15),
        ("0644", 420),
        ("1_000", 1000),
        ("12:30:00", "12:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("1024x1024", "1024x1024"),
        ("200Gi", "200Gi"),
        ("'1e-05'", "1e-05"),
        ("None", "None"),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_scalar_means_what_it_means_to_kubectl(text: str, value: Any) -> None:
    read = load(f"field: {text}")["field"]
    assert read == value
    assert type(read) is type(value)


def test_a_key_that_stands_twice_is_refused_with_its_line() -> None:
    with pytest.raises(yaml.YAMLError, match=r"'steps' stands twice[\s\S]*line 2"):
        load("steps: 1\nsteps: 2\n")


def test_a_stream_is_read_without_its_empty_documents() -> None:
    assert load_all("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_a_tag_that_would_make_an_object_is_refused() -> None:
    with pytest.raises(yaml.YAMLError):
        load("!!python/object/apply:os.getcwd []")
