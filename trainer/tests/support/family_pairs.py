"""The pairs of all families, in the order of the API's: a new family adds its own here."""

from __future__ import annotations

import flux2_pair
import flux_pair
import pytest
import qwenimage_pair
import sd3_pair
import wan_pair
import zimage_pair

PAIRS = (flux_pair.PAIR, flux2_pair.PAIR, zimage_pair.PAIR, sd3_pair.PAIR, qwenimage_pair.PAIR, wan_pair.PAIR)

of_every_family = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.family.slug)
of_every_case = pytest.mark.parametrize(
    ("pair", "case"),
    [pytest.param(pair, case, id=f"{pair.family.slug}-{case.name}") for pair in PAIRS for case in pair.cases],
)
of_any_number_of_blocks = pytest.mark.parametrize(
    ("pair", "recomputed"),
    [pytest.param(pair, number, id=f"{pair.family.slug}-{number}") for pair in PAIRS for number in pair.recomputed],
)
none_or_all = pytest.mark.parametrize(
    ("pair", "recomputed"),
    [pytest.param(pair, number, id=f"{pair.family.slug}-{number}") for pair in PAIRS for number in (0, pair.blocks)],
)
