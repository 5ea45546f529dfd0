"""Settings that are passed on: nothing that looks secret, and all that is none."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.contract.struck_out import STRUCK_OUT, struck_out


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


def variable(name: str, value: str) -> dict[str, Any]:
    return {"pod": {"env": [{"name": name, "value": value}]}}


@pytest.mark.parametrize(
    "given",
    [
        {"args": ["bash", "-c", "export AWS_SECRET_ACCESS_KEY=HIDDEN"]},
        {"args": ["sh", "-c", "train --password HIDDEN --lr 1"]},
        {"args": ["sh", "-c", "train --password \\\n  HIDDEN"]},
        {"args": ["sh", "-c", "train --password --wandb-key HIDDEN"]},
        {"args": ["sh", "-c", "train --env API_TOKEN=HIDDEN --token-of-ci HIDDEN"]},
        {"args": ["--wandb-key", "HIDDEN"]},
        {"args": ["--slack-webhook", "https://example.com/HIDDEN"]},
        {"args": ["sh", "-c", 'export DB_PASSPHRASE="two HIDDEN words" X=1']},
        {"args": ["sh", "-c", "export DB_PASS='two HIDDEN' B=1"]},
        {"args": ["sh", "-c", "echo ${DB_PASSWD:-HIDDEN}"]},
        {"args": ['{"apiKey": "HIDDEN", "private_key": "HIDDEN"}']},
        {"args": ["sh", "-c", r'post "{\"token\": \"HIDDEN\"}"']},
        {"args": ["curl", "-H", "Authorization: Bearer HIDDEN"]},
        {"args": ["curl", "-H", "Authorization: Basic HIDDEN"]},
        {"args": ["curl", "-H", "X-Whatever: bearer HIDDEN"]},
        {"args": ["sh", "-c", "WEBHOOK=https://example.com/HIDDEN train"]},
        {"args": ["post", "https://hooks.slack.com/services/HIDDEN"]},
        variable("SLACK_WEBHOOK_URL", "https://chat.example.com/services/HIDDEN"),
        variable("DB_PASS", "HIDDEN"),
        variable("DB_PWD", "HIDDEN"),
        variable("AUTHORIZATION", "HIDDEN"),
        variable("SECRET_KEY_BASE", "HIDDEN"),
        variable("TOKENS", "HIDDEN"),
        variable("KEY", "HIDDEN"),
        variable("STORAGE", "AccountName=x;AccountKey=HIDDEN==;Suffix=y"),
        variable("A", "http://u:p@HIDDEN@host/x"),
        variable("A", "postgresql://user:pa/HIDDEN@db/x"),
        variable("A", "postgresql://user:pa?HIDDEN#x@db/x"),
        variable("A", "https://HIDDEN@host/x"),
    ],
)
def test_no_way_to_write_a_secret_leaves_it_in_the_settings(given: Any) -> None:
    assert "HIDDEN" in str(given)
    assert "HIDDEN" not in str(struck_out(given))


@pytest.mark.parametrize(
    "given",
    [
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {"affinity": {"matchExpressions": [{"key": "gpu.class", "operator": "In", "values": ["a"]}]}},
        {"affinity": {"topologyKey": "kubernetes.io/hostname"}},
        {"urlSecretRef": {"name": "hook", "key": "url"}, "volumes": [{"secret": {"secretName": "certificates"}}]},
        {"args": ["train", "--max-tokens", "512", "model.token_dim=768", "--tokenizer", "t5", "max_tokens=77"]},
        {"args": ["sh", "-c", "cd $PWD && train --lr 1 --key-file /run/x"]},
        {"args": ["pip", "install", "git+https://github.com/team/code@main"]},
        {"url": "http://[fd00::1]:80/x", "other": "http://host:80/x"},
        variable("MAX_TOKENS", "512"),
        variable("TOKENIZERS_PARALLELISM", "false"),
        variable("PWD", "/work"),
    ],
)
def test_what_is_no_secret_stays_in_the_settings(given: Any) -> None:
    assert struck_out(given) == given


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a=",
        "://",
        "://a:",
        "://@",
        'key="',
        "key='",
        'key=\\"',
        "key ",
        "--key ",
        "--key -",
        " ",
        "\\\n",
        "bearer ",
        '"',
    ],
)
def test_striking_out_ends_soon_whatever_the_text(piece: str) -> None:
    struck_out(piece * 200_000)  # a second, and hours if it grew with the square
