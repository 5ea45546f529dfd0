from pathlib import Path
from typing import Any

import pytest

from oarlock_api.contract.kept_spec import (
    MAX_SETTINGS,
    SPEC,
    KeptSpec,
    parse_settings,
    parse_spec,
    read_spec,
    settings,
)
from oarlock_api.contract.struck_out import STRUCK_OUT, struck_out
from oarlock_api.contract.wire import WireError

KEPT = KeptSpec(job="uid", namespace="team", name="flux", attempt=2, time="t", spec={"nodes": 2, "x": "\u00c4"})


def test_what_is_kept_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_spec(tmp_path) is None
    (tmp_path / SPEC).parent.mkdir(parents=True)
    (tmp_path / SPEC).write_text(KEPT.to_json())
    assert read_spec(tmp_path) == KEPT


@pytest.mark.parametrize("body", ["", "[]", '{"spec": [], "attempt": 1}', '{"spec": {}}'])
def test_what_is_no_kept_spec_is_refused(body: str) -> None:
    with pytest.raises(WireError):
        parse_spec(body)


def test_settings_that_are_too_long_lose_their_longest_fields_and_say_so() -> None:
    spec = {"nodes": 2, "training": {"steps": 7, "data": ["x" * 100] * 1000}, "webhooks": ["y" * 300] * 10}
    told = parse_settings(written := settings(spec))
    assert len(written) <= MAX_SETTINGS
    assert told["nodes"] == 2
    assert told["training"] == {"steps": 7, "data": "(left out: 104000 bytes)"}
    assert len(told["webhooks"]) == 10
    assert len(spec["training"]["data"]) == 1000, "the spec itself stays"  # type: ignore[index]
    assert settings({str(number): number for number in range(10_000)}) == ""
    assert parse_settings("") == {}


def test_kubernetes_expands_nothing_in_settings() -> None:
    assert "$" not in (told := settings({"a": "$(HOME)"}))
    assert parse_settings(told) == {"a": "$(HOME)"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"env": [{"name": "HF_TOKEN", "value": "hf_1"}]}, {"env": [{"name": "HF_TOKEN", "value": STRUCK_OUT}]}),
        ({"env": [{"name": "DEBUG", "value": "INFO"}]}, {"env": [{"name": "DEBUG", "value": "INFO"}]}),
        (
            {"apiKey": "abc", "pin_key": 7, "maxTokens": 512},
            {"apiKey": STRUCK_OUT, "pin_key": STRUCK_OUT, "maxTokens": 512},
        ),
        (["--api-key=abc", "--lr", "1"], [f"--api-key={STRUCK_OUT}", "--lr", "1"]),
        (["--hf-token", "hf_1", "go", "--token", "--fast"], ["--hf-token", STRUCK_OUT, "go", "--token", "--fast"]),
        ({"url": "https://me:pw@example.com/data?sig=1"}, {"url": "https://example.com/data"}),
        ({"dsn": "postgres://me:pw@db/x"}, {"dsn": "postgres://db/x"}),
        ({"model": "s3://bucket/flux"}, {"model": "s3://bucket/flux"}),
        (
            {"webhooks": [{"url": "https://hooks.example.com/T0/B1"}]},
            {"webhooks": [{"url": "https://hooks.example.com"}]},
        ),
        (
            {"tokenSecretRef": {"name": "hook"}, "on": True, "no": None},
            {"tokenSecretRef": {"name": "hook"}, "on": True, "no": None},
        ),
    ],
)
def test_what_looks_secret_is_struck_out_and_the_rest_stays(given: Any, kept: Any) -> None:
    assert struck_out(given) == kept
