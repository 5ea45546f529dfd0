"""torch without its compiler, where nothing is compiled: 1.2 s of imports less before the first step after every fault.

torch, DeepSpeed and diffusers import torch._dynamo only to mark functions that it is to leave alone, or to tell it where a
graph ends, and DDP asks it how it would cut graphs. Where TORCHDYNAMO_DISABLE says that nothing is compiled, a stand-in takes
these marks, answers that it cuts none, and does nothing. Asked for anything else (recomputed activations do), it steps aside
for the real one; whoever imports further parts of the real one calls `bring_back` before.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

_NAME = "torch._dynamo"
_PART = "torch._dynamo._trace_wrapped_higher_order_op"
"""The one part that transformers imports by name; it uses it for masks that our encoders seldom need."""
_torchs_own: dict[str, Any] = {}


def import_torch() -> Any:
    """Import torch, without its compiler where nothing is compiled; returns the module."""
    leave_out = "torch" not in sys.modules and os.environ.get("TORCHDYNAMO_DISABLE") == "1"
    if leave_out:
        sys.modules[_NAME] = _StandIn(_NAME, "Takes the marks that are meant for torch's compiler.")
        sys.modules[_PART] = types.ModuleType(_PART)
        vars(sys.modules[_PART])["TransformGetItemToIndex"] = _transform_get_item_to_index
    import torch  # noqa: PLC0415

    if leave_out:
        vars(torch)["_dynamo"] = sys.modules[_NAME]
        _torchs_own["compile"] = torch.compile
        vars(torch)["compile"] = _same  # DeepSpeed's Muon is decorated with it, used or not
    return torch


def bring_back() -> None:
    """Have the next import of torch's compiler import it."""
    if isinstance(sys.modules.get(_NAME), _StandIn):
        torch = vars(sys.modules["torch"])
        del sys.modules[_NAME], sys.modules[_PART]
        del torch["_dynamo"]
        torch.update(_torchs_own)


def _same(function: Any = None, *_options: Any, **_more: Any) -> Any:
    """The function itself, or a decorator that returns it."""
    return function if function is not None else _same


def _transform_get_item_to_index() -> Any:
    """Like the real class, but imports it (and the compiler with it) when it is wanted."""
    bring_back()
    return importlib.import_module(_PART).TransformGetItemToIndex()


def _nothing(*_: Any, **__: Any) -> None:
    pass


class _StandInUtils:
    @staticmethod
    def get_optimize_ddp_mode() -> str:
        return "no_optimization"

    def __getattr__(self, name: str) -> Any:
        bring_back()
        return getattr(importlib.import_module(f"{_NAME}.utils"), name)


class _StandIn(types.ModuleType):
    disable = staticmethod(_same)
    allow_in_graph = staticmethod(_same)
    assume_constant_result = staticmethod(_same)
    graph_break = staticmethod(_nothing)
    trace_rules = types.SimpleNamespace(clear_lru_cache=_nothing)
    utils = _StandInUtils()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        bring_back()
        return getattr(importlib.import_module(_NAME), name)
