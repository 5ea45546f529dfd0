"""What uv.lock puts into the operator's image, on which processors; and what an image with another torch keeps of it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.images.dockerfile import ROOT

LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PACKAGES: dict[str, list[dict[str, Any]]] = {}
for _package in LOCK["package"]:
    PACKAGES.setdefault(_package["name"], []).append(_package)


def closure(name: str) -> set[str]:
    """A package and all that it needs, anywhere; extras of what it needs as they are asked for."""
    found: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(name, ())]
    while waiting:
        name, extras = waiting.pop()
        for package in PACKAGES[name]:
            needed = [*package.get("dependencies", ())]
            needed += [each for extra in extras for each in package.get("optional-dependencies", {}).get(extra, ())]
            found.add(name)
            waiting += [
                (each["name"], tuple(each.get("extra", ())))
                for each in needed
                if each["name"] not in found or each.get("extra")
            ]
    return found


def test_the_operators_image_holds_no_torch_and_no_trainer() -> None:
    packages = closure("oarlock-operator")
    assert {"kopf", "aiohttp", "oarlock-api"} <= packages
    assert not packages & {"torch", "deepspeed", "diffusers", "numpy", "oarlock-trainer", "oarlock-local"}
    assert not [name for name in packages if name.startswith("nvidia-")]


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_the_operators_image_needs_no_compiler(processor: str) -> None:
    ours = {"oarlock-api", "oarlock-operator"}
    for name in closure("oarlock-operator") - ours:
        for package in PACKAGES[name]:
            wheels = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", ())]
            fitting = [
                wheel
                for wheel in wheels
                if wheel.endswith("-none-any.whl")
                or ("manylinux" in wheel and processor in wheel and ("-cp313-cp313-" in wheel or "-abi3-" in wheel))
            ]
            assert fitting or only_elsewhere(name), (name, wheels)


def only_elsewhere(name: str) -> bool:
    """Whether all who need a package need it on another system or an older Python only."""
    markers = [
        each.get("marker", "")
        for packages in PACKAGES.values()
        for package in packages
        for each in package.get("dependencies", ())
        if each["name"] == name
    ]
    return all("python_full_version <" in marker or "sys_platform ==" in marker for marker in markers)
