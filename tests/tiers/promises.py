"""Each promise of the README and the test of `make test` that keeps it on a real cluster.

    python -m tests.tiers.promises            writes promises.md beside this module
    python -m tests.tiers.promises --check    says whether it is as it should be

A test says with `@pytest.mark.smoke("a promise")` which one it stands for. A promise without a test, a test for what nobody
promises, and words that the README no longer has are errors.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("promises.md")
PROMISES = {
    "trains": "trains FLUX.1-class models on many 8-GPU nodes",
    "trains another family": "FLUX.2, Z-Image, Stable Diffusion 3.5, Qwen-Image",
    "resumes by a new attempt": "training goes on elsewhere from the newest checkpoint",
    "resumes in place": "all ranks start anew where they are",
    "cordons the node of a broken GPU": "a GPU falls off the bus (XID 79)",
    "outlives a lost node": "after crashes, lost pods, hangs and lost nodes",
    "leaves a drained node": "a drained node costs",
    "is suspended and resumed": "suspend and resume",
    "has spares": "A spare may take its place",
    "reads and writes buckets": "pictures and videos from folders and S3 buckets",
    "is seen on a page": "a page, live",
    "is installed by a chart": "helm install oarlock charts/oarlock",
}
"""What the README promises, and the words there that say so (without links and line breaks)."""


class Unkept(Exception):  # noqa: N818 - what it says is what is wrong
    """A promise and its tests do not belong together; the message says which, and what to do."""


def table(root: Path = ROOT) -> str:
    """The page. Raises Unkept."""
    readme = plain((root / "README.md").read_text(encoding="utf-8"))
    kept: dict[str, list[str]] = {}
    for path in sorted(root.glob("tests/**/test_*.py")):
        for promise, test in smokes(path):
            kept.setdefault(promise, []).append(f"{path.relative_to(root)}::{test}")
    if strange := kept.keys() - PROMISES.keys():
        raise Unkept(
            f"{kept[min(strange)][0]} stands for {min(strange)!r}, which is no promise of tests/tiers/promises.py"
        )
    rows = []
    for promise, words in PROMISES.items():
        if promise not in kept:
            raise Unkept(f'{promise!r} has no test: mark one with @pytest.mark.smoke("{promise}")')
        if words not in readme:
            raise Unkept(f"README.md no longer says {words!r} of {promise!r}: see tests/tiers/promises.py")
        rows.append(f"| {promise} | {words} | {'<br>'.join(f'`{test}`' for test in kept[promise])} |")
    head = (
        "# What the README promises, and the test of `make test` that keeps it",
        "Written by `make generate` from the marks of the tests (tests/tiers/promises.py).",
        "| a job | the README's words | its test |\n| --- | --- | --- |",
    )
    return "\n\n".join(head) + "\n" + "\n".join(rows) + "\n"


def smokes(path: Path) -> Iterator[tuple[str, str]]:
    """Promise and test of each smoke in a file of tests."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in (each for mark in node.decorator_list for each in ast.walk(mark)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.smoke":
                    yield ast.literal_eval(call.args[0]), node.name


def plain(markdown: str) -> str:
    """A page's words, without its links and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown))


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it."""
    try:
        text = table()
    except Unkept as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if arguments != ["--check"]:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is out of date: make generate\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
