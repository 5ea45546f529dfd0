"""The reference page: in step with the models, every field on it, every link on it leads somewhere."""

from __future__ import annotations

import re

import pytest

from oarlock_api import reference
from oarlock_api.rules import Rule
from oarlock_api.spec import TrainingJobSpec

PAGE = reference.render()


def test_the_committed_page_is_what_the_models_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def test_every_link_leads_to_a_table() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    links = set(re.findall(r"\]\(#([^)]*)\)", PAGE))
    assert links
    assert links - anchors == set()


def test_every_row_has_its_four_cells() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_defaults_units_and_simpletuners_words_stand_beside_the_field() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `batchSize`"))
    assert "`1`" in row
    assert "train_batch_size" in row
    assert "in seconds" in next(line for line in PAGE.splitlines() if line.startswith("| `maxBackoffSeconds`"))


def test_what_a_refusal_says_is_on_the_page() -> None:
    rules: tuple[Rule, ...] = TrainingJobSpec.admission
    assert all(rule.message in PAGE for rule in rules)
