"""Captions: cleaned, cut by filters, several to a picture."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.dataset import Dataset
from oarlock_trainer.data.metadata.captions import Wording, from_name, gathered, one_each
from oarlock_trainer.runtime.errors import ConfigurationError

SPACES = " \t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u202f\u205f\u3000"


def wording(**captions: Any) -> Wording:
    return Wording(Dataset.model_validate({"name": "photos", "source": {"path": "/x"}, "captions": captions}))


def cleaned(texts: list[str | None], **captions: Any) -> list[str | None]:
    found: list[str | None] = wording(**captions).clean(pa.array(texts, pa.string())).to_pylist()
    return found


@given(st.lists(st.none() | st.text("ab\u00e9\u6f22" + SPACES, max_size=12), max_size=12))
def test_white_space_is_one_space_between_words_and_none_around_them(texts: list[str | None]) -> None:
    assert cleaned(texts) == [" ".join((text or "").split()) or None for text in texts]


def test_marks_without_a_picture_alone_are_no_caption() -> None:
    alone, within = "\u200b \u00a0\ufeff", "a \u200bboat"
    assert cleaned([alone, within, "\u200b"]) == [None, within, None]


def test_filters_cut_and_the_datasets_words_come_before_what_is_left() -> None:
    texts = ["a cat, trending on artstation", "trending on artstation", None]
    found = cleaned(texts, filters=[r",?\s*trending on \w+"], prepend="sks style,  ")
    assert found == ["sks style, a cat", None, None]


def test_a_filter_that_is_no_regular_expression_is_the_jobs_fault() -> None:
    with pytest.raises(ConfigurationError, match=r'"photos": captions\.filters: .a\(. is no regular expression'):
        wording(filters=["a("])


def test_a_files_name_without_its_extension_is_its_text() -> None:
    assert from_name("cats/my_red-cat.v2.png") == "my red cat.v2"


def test_all_cells_of_a_row_are_kept_in_order_and_the_fallback_serves_empty_ones() -> None:
    short = pa.array(["a", None, "", " ", "e"])
    many = pa.array([["b", "", "c"], None, [], ["d"], None], pa.list_(pa.string()))
    fallback = pa.array(["x", "y", " ", "z", "w"])
    found = gathered([short, many], fallback, wording())
    assert found.to_pylist() == [["a", "b", "c"], ["y"], [], ["d"], ["e"]]


def test_lines_of_a_text_are_one_caption_or_each_one_of_its_own() -> None:
    texts = pa.array(["first\n\n second caption \r\nthird\r", None, "\n \n", "one\u2028line"])
    filters = {"filters": [r"^(?:tags: )"], "prepend": "sks"}
    assert one_each(texts, wording()).to_pylist() == [["first second caption third"], [], [], ["one line"]]
    assert one_each(texts, wording(lines="Joined")).to_pylist() == one_each(texts, wording()).to_pylist()
    found = one_each(texts, wording(lines="Drawn", **filters)).to_pylist()
    assert found == [["sks first", "sks second caption", "sks third"], [], [], ["sks one line"]]
    assert one_each(pa.array(["tags: a\ntags: b"]), wording(lines="Drawn", **filters)).to_pylist() == [
        ["sks a", "sks b"]
    ]


def test_a_part_of_a_larger_array_is_read_as_itself() -> None:
    many = pa.array([["no"], ["a", "b"], ["c"]], pa.list_(pa.string())).slice(1)
    assert gathered([many], None, wording()).to_pylist() == [["a", "b"], ["c"]]


def test_no_picture_has_no_captions() -> None:
    assert one_each(pa.array([], pa.string()), wording()).to_pylist() == []
