"""The page of figures of a machine with GPUs, in Markdown, from what the measurements left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET


def page(
    machine: Mapping[str, str],
    *,
    step: Mapping[str, Any] | None = None,
    network: Mapping[str, Any] | None = None,
    tests: str = "",
) -> str:
    """All that is known. `step`: gpu-step.json, `network`: gpu-network.json, `tests`: pytest's JUnit file, as text."""
    parts = [
        "# Figures of a machine with GPUs",
        "`make gpu-test gpu-bench`. Measured, but for the columns that say model.",
    ]
    parts += ["## Machine", table(("what", "value"), list(machine.items()))]
    if step:
        parts += ["## A training step", _steps(step)]
    if network:
        parts += ["## The exchange between GPUs", _network(network)]
    if tests:
        parts += ["## Checks", _checks(tests)]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table. Cells are shown as str shows them."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def _steps(found: Mapping[str, Any]) -> str:
    facts = found["facts"]
    rows = [
        (name, one["error"], "", "", "", "")
        if "error" in one
        else (
            name,
            f"{one['ms_per_image']:.1f}",
            "unknown" if one["mfu"] is None else f"{one['mfu']:.1%}",
            f"{one['peak_gb']:.1f}",
            f"{one['all_blocks_ms_model']:.0f}",
            one["attention"],
        )
        for name, one in found["results"].items()
    ]
    head = ("contender", "ms per image", "MFU", "peak, GB", "ms with all 57 blocks (model)", "attention")
    about = (
        f"`bench/gpu_step.py`: {facts['blocks']} blocks of FLUX.1 of {facts['pixels']} pixels, batch {facts['batch']}, "
        f"medians of {facts['rounds']} steps, on one {facts['gpu']}, torch {facts['torch']}."
    )
    return f"{about}\n\n{table(head, rows)}"


def _network(found: Mapping[str, Any]) -> str:
    rows = [
        ("ranks, nodes", f"{found['ranks']}, {found['nodes']}"),
        (f"all-reduce of {found['mebibytes']} MiB", f"{found['all_reduce']:.2f} ms"),
        ("bus bandwidth", f"{found['bus_bandwidth']:.1f} GB/s"),
        ("NCCL's network between nodes", ", ".join(sorted(set(found["networks"].values()))) or "unknown"),
        ("ring, slowest node", f"{max(found['ring'].values()):.2f} ms"),
    ]
    return f"`bench/gpu_network.py`.\n\n{table(('what', 'value'), rows)}"


def _checks(text: str) -> str:
    rows = []
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - pytest's own file
        kinds = {child.tag: child for child in case}
        failed = "failure" in kinds or "error" in kinds
        why = kinds["skipped"].get("message", "") if "skipped" in kinds else ""
        name = case.get("name", "").removeprefix("test_").replace("_", " ")
        result = "**failed**" if failed else f"skipped: {why}" if why else "passed"
        found = "; ".join(f"{one.get('name')}: {one.get('value')}" for one in case.iter("property"))
        rows.append((name, result, found, f"{float(case.get('time', 0)):.1f}"))
    return f"`make gpu-test`.\n\n{table(('check', 'result', 'found', 'seconds'), rows)}"
