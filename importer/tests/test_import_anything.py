"""Whatever stands in the files, the import ends with a job or with reasons, and speaks of every option once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oarlock_import.importing import OPTIONS
from oarlock_import.rows import table
from oarlock_import.tables.dataset import DATASET, EMBEDS, PARQUET, WEBHOOK
from oarlock_import.tables.launch import ACCELERATE, DEEPSPEED, DYNAMO
from oarlock_local.pytest_tiers import examples
from oarlock_trainer.plan.support import refuse_unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported

_WORDS = [
    *sorted({word for row in OPTIONS.values() for word in row.words}),
    "auto",
    "uniform",
    "closest",
    "a/b",
    "/c",
    "'",
]
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3000), st.floats(-1, 9), st.sampled_from(_WORDS), st.text(max_size=5)
)
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=2), st.dictionaries(st.text(max_size=3), _SCALARS, max_size=2)
)


def _some(names: Any, most: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(sorted(names)), _VALUES, max_size=most)


def _blocks(names: Any, blocks: dict[str, Any], most: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """A file with some of its keys, and some of the blocks in it."""
    nested = st.fixed_dictionaries({}, optional={key: _some(table(*rows), 3) for key, rows in blocks.items()})
    return st.builds(lambda outer, inner: outer | inner, _some(names, most), nested)


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changed=_some(OPTIONS, 6),
    dataset=_blocks(table(*DATASET), {"parquet": PARQUET}),
    embeds=_some(table(*EMBEDS), 3),
    accelerate=_blocks(table(*ACCELERATE), {"deepspeed_config": DEEPSPEED, "dynamo_config": DYNAMO}),
    hook=_some(table(*WEBHOOK), 3),
)
def test_anything_ends_with_a_job_or_with_reasons(
    *,
    changed: dict[str, Any],
    dataset: dict[str, Any],
    embeds: dict[str, Any],
    accelerate: dict[str, Any],
    hook: dict[str, Any],
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    options = simple | changed
    store = {"id": "text", "dataset_type": "text_embeds"} | embeds
    job = imported(options, folder | dataset, store, accelerate=accelerate, webhooks=hook)
    assert bool(job.text) != bool(job.refused)
    said = Counter(entry.key for entry in job.report.entries if entry.source == "config.json")
    assert {name: said[name] for name in options if said[name] != 1} == {}
    if job.text:
        assert job.job.spec.training
        refuse_unsupported(job.job.spec.training)
