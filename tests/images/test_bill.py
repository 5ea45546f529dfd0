"""What `make sbom` writes is what uv.lock puts into the images."""

from __future__ import annotations

from typing import Any

import pytest

from tests.images.bill import packages, write_bills
from tests.images.test_locked_packages import PACKAGES, closure

PARTS = pytest.mark.parametrize("part", ["operator", "trainer"])


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return write_bills(tmp_path_factory.mktemp("bills"))


def locked(part: str) -> list[dict[str, Any]]:
    """What an image's package needs, in every version that some Python or processor gets."""
    name = f"oarlock-{part}"
    without = ("kubernetes",) if part == "trainer" else ()
    extras = PACKAGES[name][0].get("optional-dependencies", {})
    return [package for each in closure(name, tuple(extras), without=without) for package in PACKAGES[each]]


@PARTS
def test_a_bill_lists_what_the_image_gets_no_more_and_no_less(bills: dict[str, dict[str, Any]], part: str) -> None:
    assert packages(bills[part]) == {(package["name"], package["version"]) for package in locked(part)}


@PARTS
def test_each_file_has_the_hash_of_the_lock(bills: dict[str, dict[str, Any]], part: str) -> None:
    for package in locked(part):
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        (component,) = [
            each
            for each in [bills[part]["metadata"]["component"], *bills[part]["components"]]
            if (each["name"], each["version"]) == (package["name"], package["version"])
        ]
        listed = {file["url"]: file["hashes"][0]["content"] for file in component.get("externalReferences", ())}
        assert listed == {file["url"]: file["hash"].removeprefix("sha256:") for file in files}, package["name"]


@PARTS
def test_a_bill_is_cyclonedx_and_names_its_image(bills: dict[str, dict[str, Any]], part: str) -> None:
    bill = bills[part]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == f"oarlock-{part}"
    named = {each["bom-ref"] for each in [bill["metadata"]["component"], *bill["components"]]}
    assert {name for each in bill["dependencies"] for name in [each["ref"], *each.get("dependsOn", ())]} == named
