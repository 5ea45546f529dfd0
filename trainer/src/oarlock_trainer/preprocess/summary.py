"""The last line of preprocessing: what there is now and where, what of it was made, what is missing, how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oarlock_trainer.plan.words import bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingWork:
    """Latents, pairs and texts that were `made` by all ranks together, pictures left out of `found`, and seconds."""

    made: int
    quarantined: int
    found: int
    seconds: float


def summary(report: Mapping[str, Any], work: EncodingWork) -> str:
    """`report` is that of data_report."""
    latents, texts, pairs = report["latents"], report["textEmbeds"], report.get("pairs")
    places = ", ".join(sorted({one["where"] for one in report["datasets"] if one["where"]}))
    said = (
        f"{_extent(texts, 'text embeddings')} in {texts['where']}" if texts["where"] else "captions encoded in training"
    )
    there = sum(one["records"] for one in (latents, texts, pairs) if one) - work.made
    drawn = " and ".join([_extent(latents, "latents"), *([_extent(pairs, "masks or references")] if pairs else [])])
    return (
        f"preprocessed: {drawn}{f' in {places}' if places else ''}, "
        f"{said}; {work.made:,} of them made now, {max(there, 0):,} were "
        f"there; {work.quarantined:,} of {work.found:,} pictures quarantined; {timedelta(seconds=round(work.seconds))}"
    )


def _extent(stored: Mapping[str, int], what: str) -> str:
    return f"{stored['records']:,} {what} ({bytes_of(stored['bytes'])})"
