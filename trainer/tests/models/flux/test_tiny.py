"""`oarlock-trainer make-tiny-flux`, which made the session's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def test_it_says_in_one_line_what_it_wrote_and_others_can_read_it(tiny_flux: Path) -> None:
    assert (tiny_flux.parent / "tiny-flux.said").read_text() == (
        f"wrote a FLUX.1 model with tiny random weights to {tiny_flux}\n"
    )
    modes = {path.stat().st_mode & 0o777 for path in tiny_flux.rglob("*") if path.is_file()}
    assert modes == {0o644}
