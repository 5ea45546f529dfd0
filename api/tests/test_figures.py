"""A step's figures: who reads the table finds each one once, under its name."""

from __future__ import annotations

from oarlock_api import numbers
from oarlock_api.contract.figures import FIGURES, Figures, parse_figures, parse_line
from oarlock_api.progress import Progress


def test_the_committed_table_is_what_the_figures_say() -> None:
    page = numbers.PATH.read_text()
    assert numbers.render(page) == page


def test_each_name_is_one_figure_s() -> None:
    for column in ("wire", "line", "gauge"):
        names = [getattr(row, column) for row in FIGURES.values()]
        assert len(set(names)) == len(names), column


def test_figures_are_read_as_they_were_written() -> None:
    figures = Figures(**{name: place for place, name in enumerate(FIGURES)})
    assert parse_figures(figures.to_fields()) == figures
    assert parse_line(figures.to_line()) == figures


def test_progress_has_figures_and_what_the_operator_makes_of_them_alone() -> None:
    """A field with another name would never be filled."""
    made = {"mfu_percent", "eta_seconds", "update_time", "silent_seconds", "hang_after_seconds"}
    assert Progress.model_fields.keys() - FIGURES.keys() == made
