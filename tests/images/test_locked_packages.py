"""What uv.lock puts into the operator's image, and on which processors."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.images.dockerfile import ROOT

LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PACKAGES: dict[str, list[dict[str, Any]]] = {}
for _package in LOCK["package"]:
    PACKAGES.setdefault(_package["name"], []).append(_package)


def closure(name: str, extras: tuple[str, ...] = (), *, without: tuple[str, ...] = ()) -> set[str]:
    """A package and all that it needs, with the extras that are asked for; without some and what only those need."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [(name, extras)]
    while waiting:
        if (each := waiting.pop()) in found:
            continue
        found.add(each)
        name, extras = each
        for package in PACKAGES[name]:
            needed = [*package.get("dependencies", ())]
            needed += [need for extra in extras for need in package.get("optional-dependencies", {}).get(extra, ())]
            waiting += [(need["name"], tuple(need.get("extra", ()))) for need in needed if need["name"] not in without]
    return {name for name, _ in found}


def test_the_operators_image_holds_no_torch_and_no_trainer() -> None:
    packages = closure("oarlock-operator", ("page",))
    assert {"kopf", "aiohttp", "oarlock-api", "starlette", "uvicorn"} <= packages
    assert not packages & {"torch", "deepspeed", "diffusers", "numpy", "oarlock-trainer", "oarlock-local"}
    assert not [name for name in packages if name.startswith("nvidia-")]


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_the_operators_image_needs_no_compiler(processor: str) -> None:
    ours = {"oarlock", "oarlock-api", "oarlock-operator"}
    for name in closure("oarlock-operator", ("page",)) - ours:
        for package in PACKAGES[name]:
            wheels = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", ())]
            fitting = [
                wheel
                for wheel in wheels
                if wheel.endswith("-none-any.whl")
                or ("manylinux" in wheel and processor in wheel and ("-cp313-cp313-" in wheel or "-abi3-" in wheel))
            ]
            assert fitting, (name, wheels)
