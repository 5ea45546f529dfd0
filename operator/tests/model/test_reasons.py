"""Reasons come from one list, so that the reference page names every one of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import oarlock_operator
from oarlock_operator.model.reasons import Reason
from oarlock_operator.process.reference import page

SOURCES = Path(oarlock_operator.__file__).parent
TELLING = {"tell", "fail", "_is", "begin"}
FILES = [*(SOURCES / "decide").glob("*.py"), *(SOURCES / "faults").glob("*.py")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_reason_is_written_out_where_it_is_given(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in TELLING:
            words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            assert not [word for word in words if word.isalpha() and word[0].isupper()], f"{path.name}:{node.lineno}"


def test_every_reason_is_given_somewhere_and_stands_on_the_page() -> None:
    code = "\n".join(path.read_text() for path in FILES)
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in code] == []
    assert all(f"| {reason} | {reason.meaning} |" in page() for reason in Reason)
