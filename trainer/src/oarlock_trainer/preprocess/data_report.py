"""The data manifest, `<output>/reports/data.json`: which data sets, how many rows, and where their embeddings lie.

For people and for the job's status. At ten million rows it takes a second to add up, so one that still holds is left.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from oarlock_api.contract.layout import DATA_MANIFEST
from oarlock_api.dataset import EmbedMode
from oarlock_trainer.data.entries import PAIR, entries_of, keeps_pairs
from oarlock_trainer.preprocess.stores import wanted_texts
from oarlock_trainer.runtime.atomic_write import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.cache_keys import Encoders
    from oarlock_trainer.data.embedding_index import EmbeddingIndex
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.preprocess.stores import EmbeddingStores
    from oarlock_trainer.runtime.job import Job


def write(
    job: Job,
    table: Table,
    stores: EmbeddingStores,
    *,
    latents: EmbeddingIndex,
    texts: EmbeddingIndex | None,
    encoders: Encoders,
) -> dict[str, Any]:
    """Write it, unless it says the same already; returns it. Rank 0 only."""
    path = job.output / DATA_MANIFEST
    answers = [latents.digest, texts.digest if texts else "", table.manifest.fingerprint, len(table.manifest.left_out)]
    written = _read(path)
    if written.get("answers") == answers:
        return written
    datasets = table.datasets()
    stored = np.array([one.image_embeds.mode is not EmbedMode.ON_THE_FLY for one in job.training.data.datasets])
    entries = entries_of(table.kept & stored[datasets], table, job.training)
    pictures = np.arange(len(entries)) < PAIR * len(table)
    pairs = {"pairs": _extent(latents, entries & ~pictures)} if keeps_pairs(job.training).any() else {}
    body = {
        "version": 1,
        "answers": answers,
        "fingerprint": table.manifest.fingerprint,
        "encoders": {"vae": encoders.vae, "text": encoders.text},
        "datasets": [
            {
                "name": dataset.name,
                "rows": int((datasets == number).sum()),
                "leftOut": int(((datasets == number) & ~table.kept).sum()),
                "imageEmbeds": dataset.image_embeds.mode,
                "where": stores.of_dataset[dataset.name].where if dataset.name in stores.of_dataset else None,
            }
            for number, dataset in enumerate(job.training.data.datasets)
        ],
        "latents": _extent(latents, entries & pictures),
        **pairs,
        "textEmbeds": _extent(texts, wanted_texts(job, table))
        | {"where": stores.texts.where if stores.texts else None},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, body)
    return body


def _extent(places: EmbeddingIndex | None, rows: np.ndarray) -> dict[str, Any]:
    shards, records, size = places.extent(rows) if places else (0, 0, 0)
    return {"shards": shards, "records": records, "bytes": size}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
