"""A secret's variable: one name for one key of one Secret, on every machine, and never the name of another."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.contract.environment import is_reserved
from oarlock_api.contract.secrets import is_secret_variable, secret_variable

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True)
KEYS = st.from_regex(r"[-._a-zA-Z0-9]{1,253}", fullmatch=True)


@given(NAMES, KEYS)
def test_every_reference_has_a_short_legal_and_reserved_name(name: str, key: str) -> None:
    variable = secret_variable(name, key)
    assert variable == secret_variable(name, key)
    assert re.fullmatch(r"OARLOCK_SECRET_[A-Z0-9_]+", variable)
    assert len(variable) <= 72
    assert is_secret_variable(variable)
    assert is_reserved(variable)


@given(st.tuples(NAMES, KEYS), st.tuples(NAMES, KEYS))
def test_two_references_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (secret_variable(*one) == secret_variable(*other)) == (one == other)


def test_references_that_read_alike_have_names_of_their_own() -> None:
    alike = [("a-b", "c"), ("a.b", "c"), ("a", "b-c"), ("a", "b_c"), ("a", "b_C"), ("x" * 60, "a"), ("x" * 60, "b")]
    assert len({secret_variable(*reference) for reference in alike}) == len(alike)


def test_a_name_is_the_same_in_every_release() -> None:
    assert secret_variable("chat", "url") == "OARLOCK_SECRET_CHAT_URL_8A5B779B7F6B5A9A"


def test_no_other_variable_counts_as_a_secret_of_the_job() -> None:
    for name in ("", "PATH", "OARLOCK_SECRET_", "OARLOCK_SECRET_x", "OARLOCK_SECRET_A\n", "XOARLOCK_SECRET_A"):
        assert not is_secret_variable(name)
