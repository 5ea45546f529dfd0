"""What people and logs see: Discord's text within its bounds, and no secret anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webhook_inbox import KEY_REF, TOKEN_REF, URL_REF, variable

from oarlock_api.contract.sections import Webhook
from oarlock_trainer.agent.webhooks.discord import MAX_CONTENT, discord
from oarlock_trainer.agent.webhooks.receivers import ReceiverError, receiver_of
from oarlock_trainer.agent.webhooks.redaction import redacted, secret_values, without_secrets

PAYLOAD: dict[str, Any] = {
    "severity": "critical",
    "title": "GPU fault on node gpu-7",
    "message": "GPU 5 has fallen off the bus",
    "namespace": "research",
    "job": "flux",
    "attempt": 3,
    "node": "gpu-7",
}
TOKEN = "tok-0123456789"  # noqa: S105
HOOK = "https://discord.example.com/api/webhooks/1234/very-secret"


def test_discord_gets_the_title_the_message_and_the_place() -> None:
    assert discord(PAYLOAD, "[flux]") == {
        "content": "[flux] 🔴 **GPU fault on node gpu-7**\nGPU 5 has fallen off the bus\n"
        "`research/flux, attempt 3, node gpu-7`",
        "allowed_mentions": {"parse": []},
    }


def test_a_mention_in_a_message_pings_nobody() -> None:
    assert discord({**PAYLOAD, "message": "@everyone <@1>"})["allowed_mentions"] == {"parse": []}


@given(st.text(st.characters(codec=None) | st.just("🔴"), max_size=5000), st.text(max_size=1024))
def test_a_text_is_never_longer_than_discord_takes_and_always_says_where(message: str, prefix: str) -> None:
    content = discord({**PAYLOAD, "message": message}, prefix)["content"]
    assert len(content.encode("utf-16-le", errors="replace")) // 2 <= MAX_CONTENT
    assert content.endswith("`research/flux, attempt 3, node gpu-7`")


def test_a_text_that_fits_is_not_cut_and_one_that_does_not_is_cut_by_as_little_as_needed() -> None:
    room = MAX_CONTENT - len(discord({**PAYLOAD, "severity": "info", "message": ""})["content"])
    for length, cut in ((room, False), (room + 1, True)):
        content = discord({**PAYLOAD, "severity": "info", "message": "x" * length})["content"]
        assert ("…" in content) is cut
        assert len(content) == MAX_CONTENT


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (HOOK, "https://discord.example.com/***"),
        ("https://user:password@host:8443/x?token=1", "https://host:8443/***"),
        ("http://receiver.ns.svc", "http://receiver.ns.svc"),
        ("http://receiver.ns.svc/?token=1", "http://receiver.ns.svc"),
        ("http://[fd00::1]:80/x", "http://[fd00::1]:80/***"),
        ("secret", "***"),
        ("https://host:port/secret", "***"),
        ("https://[secret", "***"),
    ],
)
def test_an_address_is_shown_without_what_may_be_its_secret(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_values_of_the_job_s_secrets_are_struck_out_of_every_text() -> None:
    environment = {
        "OARLOCK_SECRET_A": f"{TOKEN}\n",
        "OARLOCK_SECRET_B": f"{TOKEN}-long",
        "OARLOCK_SECRET_C": "abc",
        "X": "xxxxxxx",
    }
    secrets = secret_values(environment)
    assert secrets == (f"{TOKEN}-long", TOKEN)
    said = {"a": f"Bearer {TOKEN}!", "b": [f"{TOKEN}-long", 1, None, "abc xxxxxxx"], "c": {"d": TOKEN}}
    assert without_secrets(said, secrets) == {
        "a": "Bearer ***!",
        "b": ["***", 1, None, "abc xxxxxxx"],
        "c": {"d": "***"},
    }


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("db_password", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("WANDB_API_KEY", True),
        ("DB_PASS", True),
        ("DB_PWD", True),
        ("PWD", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("MONKEY", False),
        ("PATH", False),
    ],
)
def test_a_variable_whose_name_says_so_holds_a_secret(name: str, is_secret: bool) -> None:  # noqa: FBT001
    assert bool(secret_values({name: "some-value"})) is is_secret


def test_a_receiver_shows_neither_its_address_nor_its_token_nor_its_key() -> None:
    webhook = Webhook(
        name="chat",
        url_secret_ref=URL_REF,
        auth_secret_ref=TOKEN_REF,
        signature_secret_ref=KEY_REF,
    )
    environment = {
        variable(URL_REF): HOOK.replace("https://", "https://me:pass-word@"),
        variable(TOKEN_REF): TOKEN,
        variable(KEY_REF): "sign-me",
    }
    shown = repr(receiver_of(webhook, environment))
    assert not [secret for secret in ("very-secret", "pass-word", TOKEN, "sign-me") if secret in shown]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", f"{variable(URL_REF)} is empty"),
        (" \n", f"{variable(URL_REF)} is empty"),
        ("ftp://secret-host/x", "must begin with http"),
        ("//secret-host/x", "must begin with http"),
        ("https://", "must begin with http"),
        ("https://host:secret/x", "cannot be read"),
        ("https://[secret/x", "cannot be read"),
        (f"https://{'secret' * 20}.example/x", "cannot be read"),
        ("https://host/sec ret", "a space"),
        ("https://host/\x01secret", "a space or a control character"),
    ],
)
def test_an_address_that_is_none_is_refused_at_the_start_without_being_shown(value: str, words: str) -> None:
    webhook = Webhook(name="chat", url_secret_ref=URL_REF)
    with pytest.raises(ReceiverError, match=words) as refused:
        receiver_of(webhook, {variable(URL_REF): value})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "größer", "a\x00b"])
def test_a_token_that_no_header_can_carry_is_refused_at_the_start_without_being_shown(token: str) -> None:
    webhook = Webhook(name="us", url="https://host", auth_secret_ref=TOKEN_REF)
    with pytest.raises(ReceiverError, match="authSecretRef") as refused:
        receiver_of(webhook, {variable(TOKEN_REF): token})
    assert token not in str(refused.value)
