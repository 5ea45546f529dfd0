"""The entries of multidatabackend.json as SimpleTuner reads them: which count, of which kind each is, what is filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_import import conditioning, videos
from oarlock_import.options import Options
from oarlock_import.rows import Kind, table
from oarlock_import.simpletuner import DEFAULTS
from oarlock_import.tables.dataset import CONDITIONING, DATASET, EMBEDS, SEEN
from oarlock_import.values import read as read_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ROLES = {"image": "Train", videos.TYPE: "Train", "eval": "Evaluation"}
"""dataset_type of what is trained on or measured -> its role in the job."""
_DATASET, _EMBEDS, _CONDITIONING = table(*DATASET), table(*EMBEDS), table(*CONDITIONING)
_TABLES = dict.fromkeys(ROLES, _DATASET) | {
    "text_embeds": _EMBEDS,
    "image_embeds": _EMBEDS,
    conditioning.TYPE: _CONDITIONING,
    conditioning.SEEN: table(*SEEN),
}
_STORES = ("local", "aws")
_PLACEHOLDER = re.compile(r"\{(model_family|output_dir|id)\}")
_NO_OUTPUT = DEFAULTS["output_dir"]


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One entry of the file that counts."""

    name: str
    kind: str
    options: Options


def read(entries: list[Any], options: Options, source: str) -> list[DatasetEntry]:
    """The entries that count; why another one does not is reported."""
    report, blocks = options.report, _blocks(entries, options, source)
    latents = {str(block.get("image_embeds")) for block in blocks}
    kinds = [_kind(block, latents) for block in blocks]
    why = [_left_out(block, kind) for block, kind in zip(blocks, kinds, strict=True)]
    used = _named(block for block, reason in zip(blocks, why, strict=True) if not reason)
    unused = _named(block for block, reason in zip(blocks, why, strict=True) if reason) - used
    found: list[DatasetEntry] = []
    seen: set[str] = set()
    for block, kind, reason in zip(blocks, kinds, why, strict=True):
        name = str(block["id"])
        if reason:
            report.ignored(source, name, reason)
        elif kind == conditioning.TYPE and name in unused:
            report.ignored(source, name, "belongs to a data set that is left out")
        elif name in seen:
            report.refused(source, name, "stands twice: give each entry an id of its own")
        elif (where := str(block.get("type") or "local").lower()) not in _STORES:
            what = f"{where} is not here: copy it into a folder or a bucket, and write local or aws"
            report.refused(f"{source}[{name}]", "type", what)
        elif kind not in _TABLES:
            what = f"dataset_type {kind} is not here, these are pictures, videos and captions"
            report.refused(source, name, what)
        else:
            seen.add(name)
            own = Options(f"{source}[{name}]", block, rows=_TABLES[kind], report=report)
            found.append(DatasetEntry(name, kind, own))
    return found


def _blocks(entries: list[Any], options: Options, source: str) -> list[dict[str, Any]]:
    """Entries with an id, their placeholders filled in, keys of a block `aws` as if they stood beside it."""
    found = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not entry.get("id"):
            options.report.refused(source, f"entry {number}", "has no id")
            continue
        words = {
            "id": str(entry["id"]),
            "model_family": str(options.raw("model_family") or "").strip().lower(),
            "output_dir": str(options.raw("output_dir") or _NO_OUTPUT),
        }
        block = {key: _filled(value, words) for key, value in entry.items()}
        found.append(block | (block.pop("aws") if isinstance(block.get("aws"), dict) else {}))
    return found


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """Texts with SimpleTuner's placeholders filled in, however deep they stand."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: words[match[1]], value)
    if isinstance(value, list):
        return [_filled(below, words) for below in value]
    if isinstance(value, dict):
        return {key: _filled(below, words) for key, below in value.items()}
    return value


def _kind(block: Mapping[str, Any], latents: Collection[str]) -> str:
    """Its dataset_type; what has a conditioning_type is conditioning, and examples leave that of image_embeds out."""
    kind = str(block.get("dataset_type") or ("image_embeds" if str(block["id"]) in latents else "image")).lower()
    return conditioning.TYPE if kind in ROLES and block.get("conditioning_type") not in (None, "") else kind


def _left_out(block: Mapping[str, Any], kind: str) -> str:
    """Why nothing of an entry is used; empty where it counts."""
    if any(str(block.get(key, "")).lower() in ("true", "1") for key in ("disabled", "disable")):
        return "disabled"
    if kind in ROLES and ROLES[kind] == "Train" and _is_zero(block.get("probability")):
        return "probability 0: none of it is ever drawn"
    return ""


def _is_zero(value: Any) -> bool:
    try:
        return bool(read_value(Kind.NUMBER, value) == 0)
    except ValueError:
        return False


def _named(blocks: Iterable[Mapping[str, Any]]) -> set[str]:
    """Entries that others name as their masks or references."""
    return {name for block in blocks for name in conditioning.names(block.get("conditioning_data"))}
