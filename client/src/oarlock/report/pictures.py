"""The pictures of validations below an output, as a page can show them: linked where it lies beside them, else within it.

An output is written by a job: its index may say anything. Only PNG files below the folder of pictures are read or linked, by
no link of the file system.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from oarlock.explain.curve import thinned
from oarlock.facts.model import Object
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.pictures import FOLDER, GRID, INDEX, MOST_INDEX, MOST_PICTURE
from oarlock_api.contract.regular_file import read_regular
from oarlock_api.contract.wire import integer, text

MOST_STEPS = 64
MOST_OF_A_STEP = 24
MOST_BYTES = 12 * 2**20
"""Of pictures within a page, as files; as text they are a third larger."""
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture. `source` is a relative link or a data: address. Of a grid, which shows a whole step, `width` is 0."""

    step: int
    name: str
    prompt: str = ""
    width: int = 0
    height: int = 0
    seed: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """Pictures by step, the first step first. `left_out` says what is not in it; empty where all is."""

    steps: tuple[tuple[Picture, ...], ...] = ()
    left_out: str = ""


def find_gallery(output: Path, *, job_uid: str = "", page: Path | None = None) -> Gallery:
    """The pictures of a job. `page`: where the page will lie; below `output`, it links to them. Raises OSError."""
    root = Beneath(output) / FOLDER
    steps = _steps(root, job_uid)
    shown = thinned(steps, MOST_STEPS)
    notes = [f"{len(steps):,} steps have pictures, {len(shown):,} are shown"] if len(shown) < len(steps) else []
    if any(len(step) > MOST_OF_A_STEP for step in shown):
        notes.append(f"of a step, the first {MOST_OF_A_STEP} pictures are shown")
    shown = [step[:MOST_OF_A_STEP] for step in shown]
    if page is not None and page.resolve().is_relative_to(output.resolve()):
        way = os.path.relpath(output.resolve() / FOLDER, page.resolve().parent)
        linked = [tuple(replace(one, source=quote(f"{way}/{one.source}")) for one in step) for step in shown]
        return Gallery(steps=tuple(linked), left_out="; ".join(notes))
    if _bytes(root, shown) > MOST_BYTES:
        grids = [grid for step in shown if (grid := _grid(root, step))]
        kept = _that_fit(root, grids)
        notes = [f"pictures of {len(steps):,} steps; the small grids of {len(kept):,} are within this page"]
        shown = kept
    within = [tuple(replace(one, source=_within(root / one.source)) for one in step) for step in shown]
    return Gallery(steps=tuple(within), left_out="; ".join(notes))


def listed(index: str, job_uid: str = "") -> list[tuple[Picture, ...]]:
    """The pictures that an index names, by step; `source` is the file below the folder of pictures, whatever it says."""
    found: dict[int, dict[str, Picture]] = {}
    for entry in _entries(index):
        step, file = integer(entry.get("step")), text(entry.get("file"), 512)
        if step is None or not file or (job_uid and text(entry.get("jobUid"), 64) not in ("", job_uid)):
            continue
        found.setdefault(step, {})[file] = Picture(
            step=step,
            name=text(entry.get("name"), 120) or Path(file).stem,
            prompt=text(entry.get("prompt"), 400),
            width=integer(entry.get("width")) or 0,
            height=integer(entry.get("height")) or 0,
            seed=integer(entry.get("seed")),
            source=file,
        )
    return [tuple(pictures.values()) for _, pictures in sorted(found.items())]


def _steps(root: Beneath, job_uid: str) -> list[tuple[Picture, ...]]:
    """All pictures whose files are there; `source` is the file below `root`."""
    try:
        index = read_regular(root / INDEX, most=MOST_INDEX + 1)
    except FileNotFoundError:
        return []
    if len(index) > MOST_INDEX:
        return []
    there = (
        tuple(one for one in step if _is_there(root, one.source))
        for step in listed(index.decode(errors="replace"), job_uid)
    )
    return [step for step in there if step]


def _entries(index: str) -> Iterator[Object]:
    try:
        raw = json.loads(index)
    except (ValueError, RecursionError):
        return
    found = raw.get("pictures") if isinstance(raw, dict) else None
    yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


def _is_there(root: Beneath, name: str) -> bool:
    """Whether it is a picture's file."""
    try:
        return name.endswith(".png") and read_regular(root / name, most=len(_PNG)) == _PNG
    except (OSError, ValueError):
        return False


def _grid(root: Beneath, step: Sequence[Picture]) -> tuple[Picture, ...]:
    names = ", ".join(dict.fromkeys(one.name for one in step))
    name = f"step-{step[0].step}/{GRID}"
    return (Picture(step=step[0].step, name=names, source=name),) if _is_there(root, name) else ()


def _that_fit(root: Beneath, steps: Sequence[tuple[Picture, ...]]) -> list[tuple[Picture, ...]]:
    """Evenly fewer of them, until they fit."""
    most = len(steps)
    while most > 1 and _bytes(root, thinned(steps, most)) > MOST_BYTES:
        most = most * 3 // 4
    kept = thinned(steps, most) if most > 1 else list(steps[-1:])
    return kept if _bytes(root, kept) <= MOST_BYTES else []


def _bytes(root: Beneath, steps: Sequence[Sequence[Picture]]) -> int:
    return sum((root / one.source).stat().st_size for step in steps for one in step)


def _within(file: Beneath) -> str:
    return f"data:image/png;base64,{base64.b64encode(read_regular(file, most=MOST_PICTURE)).decode()}"
