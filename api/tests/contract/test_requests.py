"""Requests: read as they are written, and what is none is None, never an error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract import gang_key
from oarlock_api.contract.requests import (
    MAX_ID,
    Answered,
    Drill,
    Request,
    RequestState,
    Verb,
    parse_annotation,
    parse_answered,
    parse_drill,
    parse_query,
)
from oarlock_api.contract.status import parse_status

REQUESTS = st.builds(
    Request,
    st.sampled_from(Verb),
    st.text("abcXYZ019._-", min_size=1, max_size=MAX_ID).filter(lambda name: name.strip()),
)
KEY = b"k" * 32


@given(REQUESTS)
def test_a_request_is_read_as_it_is_written(request: Request) -> None:
    assert parse_annotation(f" {request.verb}  {request.id}\n") == request
    assert parse_query(str(request)) == request


@pytest.mark.parametrize("said", ["", "save", "save ", "stop 1", "save ä", "save " + "x" * 41, "save 1\x00"])
def test_what_is_no_request_is_none(said: str) -> None:
    assert parse_annotation(said) is None
    assert parse_query(said.replace(" ", ".")) is None


@given(REQUESTS)
def test_a_question_with_a_request_is_one_to_an_agent_that_knows_of_none_and_short_enough(request: Request) -> None:
    target = gang_key.question(KEY, "/status", pod_uid="p", now=1e9, request=str(request))
    assert gang_key.asked_by_one_of_us(KEY, target, pod_uid="p", now=1e9)
    assert gang_key.requested(KEY, target, pod_uid="p") == str(request)
    assert not gang_key.requested(KEY, target, pod_uid="q")
    assert not gang_key.requested(b"o" * 32, target, pod_uid="p")


def test_the_answer_and_the_drill_are_read_as_they_are_written_in_status() -> None:
    status = parse_status("{}")
    answered = Answered(id="mine", state=RequestState.DONE, step=7, seconds=3.5, message="words")
    told = replace(status, request=answered, drill=Drill(step=7, seconds=3.5))
    assert parse_status(told.to_json()) == told
    assert "request" not in json.loads(status.to_json()), "an earlier release reads what it always read"


@pytest.mark.parametrize("raw", [None, 5, [], {}, {"id": ""}, {"id": 5}, {"step": 1}, {"step": 1, "seconds": -1.0}])
def test_a_strange_answer_is_none(raw: object) -> None:
    assert parse_answered(raw) is None
    assert parse_drill(raw) is None
