"""Adapters of LyCORIS: lycoris_config.json becomes training.lora with algorithm LoKr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock_import.family import words_of
from oarlock_import.options import Options
from oarlock_import.rows import table
from oarlock_import.tables.lycoris import LYCORIS, PRESET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_import.draft import Draft

_MOST_RANK = 1024
"""Of training.lora.rank."""


def place(options: Options, draft: Draft, *, find: Callable[[str], str]) -> None:
    """Write the adapter that lycoris_config names; `find` gives the text of a file."""
    named = str(options.value("lycoris_config"))
    try:
        content = json.loads(find(named))
    except (OSError, ValueError) as error:
        options.refused("lycoris_config", str(error))
        return
    if not isinstance(content, dict):
        options.refused("lycoris_config", "is no configuration of LyCORIS")
        return
    options.mapped("lycoris_config", words=f"{named}, see there")
    given = Options(named, content, rows=table(*LYCORIS), report=options.report)
    words = words_of(options)
    _shape(given, draft, whole=words.largest // 2)
    _layers(given, draft, known=words.modules)
    given.settle(draft)


def _shape(given: Options, draft: Draft, *, whole: int) -> None:
    """Rank and factors; from a linear_dim of `whole` on LyCORIS trains whole factors of every layer."""
    given.carry(draft, "algo")
    given.carry(draft, "factor")
    rank = given.value("linear_dim")
    if given.value("full_matrix") or rank >= whole:
        draft.put("training.lora.lokr.fullMatrix", value=True)
        given.mapped(
            "full_matrix" if "full_matrix" in given else "linear_dim", words="-> training.lora.lokr.fullMatrix"
        )
        for key in ("linear_dim", "linear_alpha", "decompose_both"):
            given.ignored(key, "whole factors have no rank")
    elif rank > _MOST_RANK:
        given.refused(
            "linear_dim", f"makes some factors whole and others not; write full_matrix true, or at most {_MOST_RANK}"
        )
    else:
        given.carry(draft, "linear_dim", to="training.lora.rank")
        given.carry(draft, "linear_alpha", value=given.value("linear_alpha") or rank)
        given.carry(draft, "decompose_both")
    given.ignored("full_matrix", "false")


def _layers(given: Options, draft: Draft, *, known: Mapping[str, tuple[str, ...]]) -> None:
    """Which layers get an adapter, and those with a factor of their own. `known`: class of modules -> their layers."""
    content = given.value("apply_preset")
    if not isinstance(content, dict) or not content:
        given.refused("apply_preset", "names no layers; LyCORIS would train none: write target_module")
        return
    given.mapped("apply_preset", words="see there")
    preset = Options(f"{given.source}[apply_preset]", content, rows=table(*PRESET), report=given.report)
    own = preset.value("module_algo_map") or {}
    classes = [*dict.fromkeys([*(preset.value("target_module") or []), *own])]
    if unknown := [name for name in classes if name not in known]:
        preset.refused("target_module", f"{', '.join(unknown)}: only {', '.join(known)} are known here")
    elif wrong := [name for name, rules in own.items() if not _is_factor_alone(rules)]:
        preset.refused("module_algo_map", f"{', '.join(wrong)}: only factor differs between layers here")
    elif not classes:
        preset.refused("target_module", "names no layers; LyCORIS would train none")
    else:
        targets = list(dict.fromkeys(name for one in classes for name in known[one]))
        preset.carry(draft, "target_module", value=targets)
        factors = [
            {"targets": list(known[name]), "factor": rules["factor"]}
            for name, rules in own.items()
            if rules.get("factor", given.value("factor")) != given.value("factor")
        ]
        if factors:
            preset.carry(draft, "module_algo_map", value=factors)
        preset.ignored("module_algo_map", "says what factor says")
    preset.settle(draft)


def _is_factor_alone(rules: Any) -> bool:
    return isinstance(rules, dict) and rules.keys() <= {"factor", "algo"} and rules.get("algo", "lokr") == "lokr"
