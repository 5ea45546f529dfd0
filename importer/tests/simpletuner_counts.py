"""Count what of SimpleTuner is known here, from a checkout of it: its options, and its example configurations.

    python simpletuner_counts.py CHECKOUT

Each example is imported twice: as it is, and with a local folder where it names data. What refuses it then has to be what
data/simpletuner-examples.tsv says that is missing here, and nothing else: the exit code is 1 where it is not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from oarlock_import import checkout, command
from oarlock_import.importing import OPTIONS, build
from oarlock_import.rows import Fate
from oarlock_trainer.runtime.errors import ConfigurationError

EXPECTED = Path(__file__).parent / "data/simpletuner-examples.tsv"
"""Written by hand. Example, what of it is missing here, in words, and the keys that are refused for it."""
FATES = {
    Fate.MAPPED: "have a place in the job",
    Fate.IGNORED: "ask for nothing",
    Fate.REFUSED: "are refused with a reason",
}
_TEXTS = {"id": "text", "dataset_type": "text_embeds", "default": True, "type": "local", "cache_dir": "/text"}
_FOLDER = {"id": "a", "type": "local", "instance_data_dir": "/d", "caption_strategy": "textfile", "cache_dir_vae": "/c"}
FOLDERS = {
    "image": [_FOLDER | {"resolution": 1024, "resolution_type": "pixel_area"}, _TEXTS],
    "video": [
        _FOLDER
        | {
            "dataset_type": "video",
            "resolution": 480,
            "resolution_type": "pixel_area",
            "video": {"num_frames": 81, "min_frames": 81},
        },
        _TEXTS,
    ],
}


def refused(config: Path, datasets: Path | None) -> dict[str, str]:
    """Key -> reason of what an import refuses."""
    given = argparse.Namespace(
        config=config, datasets=datasets, accelerate=None, webhooks=None,
        name=None, claim="training-output", working_directory="/output",
    )  # fmt: skip
    try:
        _, report = build(command.inputs_of(given))
    except (ConfigurationError, OSError) as error:
        return {"file": str(error)}
    return {entry.key: entry.words for entry in report.entries if entry.fate is Fate.REFUSED}


def expected() -> dict[str, set[str]]:
    """Example -> keys that are refused with a local folder; an example that is not in the table has none."""
    rows = (line.split("\t") for line in EXPECTED.read_text().splitlines() if not line.startswith("#"))
    return {name: set(keys.split(" ")) for name, _, keys in rows}


def options(known: dict[str, Any]) -> list[str]:
    """Lines about the checkout's options."""
    fates = Counter(OPTIONS[name].fate for name in known if name in OPTIONS)
    lines = [f"options: {fates.total()} of {len(known)} are known"]
    lines += [f"  {fates[fate]} {words}" for fate, words in FATES.items()]
    return [*lines, *(f"  not known: {name}" for name in known if name not in OPTIONS)]


def family_of(config: Path) -> str:
    """The family that an example names; empty where it can't be read."""
    try:
        content = json.loads(config.read_text())
    except (OSError, ValueError):
        return ""
    return str(content.get("model_family", content.get("--model_family", "")))


def main(root: Path) -> int:
    """Print both counts."""
    found = checkout.read(root)
    lines, wrong = [f"SimpleTuner {found['version']}", *options(found["options"])], 0
    examples = [(family_of(path), path) for path in sorted(root.glob("simpletuner/examples/*/config.json"))]
    ours = sorted(one for one in examples if one[0] in checkout.FAMILIES)
    others = [path for family, path in examples if family not in checkout.FAMILIES]
    imported, told = Counter[str](), []
    missing = expected()
    with tempfile.TemporaryDirectory() as folder:
        for kind, content in FOLDERS.items():
            (Path(folder) / kind).write_text(json.dumps(content))
        for family, path in ours:
            name, without = path.parent.name, refused(path, Path(folder) / ("video" if family == "wan" else "image"))
            imported += Counter(plain=not refused(path, None), local=not without)
            told.append(
                f"  {family}: {name}{': ' if without else ' imports'}{'; '.join(map(': '.join, without.items()))}"
            )
            if without.keys() != missing.get(name, set()):
                wrong += 1
                told.append(f"    NOT AS EXPECTED, which is {' '.join(missing.get(name, ())) or 'nothing'}")
    lines.append(f"examples of the families that are here: {len(ours)} of {len(examples)}")
    lines.append(
        f"  {imported['plain']} import as they are, {imported['local']} with a local folder in place of their data"
    )
    named = sum(not refused(path, None).keys().isdisjoint({"model_family", "file"}) for path in others)
    told.append(
        f"  other families: {named} of {len(others)} are refused for their family, or as no file that can be read"
    )
    sys.stdout.write("\n".join([*lines, *told]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
