"""The captions of one data set, and the filters that SimpleTuner keeps with the text embeddings."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from oarlock_import.rows import Kind
from oarlock_import.values import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

_STRATEGIES = {"textfile": "TextFile", "filename": "Filename", "parquet": "Parquet"}
_DASHES = "a dash in a file's name is a space in the job as well; SimpleTuner makes spaces of underscores alone"
_FIXED = ("instanceprompt", "instance_prompt")


def own_or_global(dataset: Options, options: Options, key: str) -> Any:
    """A data set's own value of an option, else the one for all."""
    return dataset.value(key) if key in dataset else options.value(key)


def place(dataset: Options, options: Options, draft: Draft, *, filters: list[str]) -> None:
    """Write strategy, text, prefix and filters."""
    strategy = str(own_or_global(dataset, options, "caption_strategy")).lower()
    prompt = own_or_global(dataset, options, "instance_prompt")
    if own_or_global(dataset, options, "only_instance_prompt") or strategy in _FIXED:
        _fixed(dataset, prompt, draft)
    elif strategy in _STRATEGIES:
        draft.put("captions.strategy", _STRATEGIES[strategy])
        differs = _DASHES if strategy == "filename" else ""
        dataset.mapped("caption_strategy", words=f"-> captions.strategy: {_STRATEGIES[strategy]}", differs=differs)
        dataset.ignored("only_instance_prompt", "false")
        if strategy == "textfile":
            lines = "Joined" if dataset.value("disable_multiline_split") else "Drawn"
            draft.put("captions.lines", lines)
            dataset.mapped("disable_multiline_split", words=f"-> captions.lines: {lines}")
        dataset.ignored("disable_multiline_split", "captions are no text files")
        if own_or_global(dataset, options, "prepend_instance_prompt") and prompt:
            draft.put("captions.prepend", _one(dataset, prompt))
            for key in ("prepend_instance_prompt", "instance_prompt"):
                dataset.mapped(key, words="-> captions.prepend")
        dataset.ignored("prepend_instance_prompt", "nothing is put before captions")
        dataset.ignored("instance_prompt", "neither caption_strategy nor prepend_instance_prompt uses it")
    else:
        dataset.refused(
            "caption_strategy", f"{strategy} is not here: use textfile, filename, parquet or instanceprompt"
        )
    if filters:
        draft.put("captions.filters", filters)


def _one(dataset: Options, prompt: Any) -> str:
    """The text of instance_prompt, which may be a list."""
    texts = [str(text) for text in prompt] if isinstance(prompt, list) else [str(prompt)]
    if len(set(texts)) > 1:
        several = (
            f"has {len(texts)} texts, of which SimpleTuner draws one each time: here there is one; write one, or write "
        )
        dataset.refused("instance_prompt", f"{several}caption files")
    return texts[0]


def _fixed(dataset: Options, prompt: Any, draft: Draft) -> None:
    if not prompt:
        dataset.refused("instance_prompt", "is missing, and caption_strategy or only_instance_prompt needs it")
        return
    draft.put("captions.strategy", "Fixed")
    draft.put("captions.text", _one(dataset, prompt))
    dataset.mapped("instance_prompt", words="-> captions.text")
    for key in ("caption_strategy", "only_instance_prompt"):
        dataset.mapped(key, words="-> captions.strategy: Fixed")
    dataset.ignored("disable_multiline_split", "captions are no text files")
    dataset.ignored("prepend_instance_prompt", "the prompt is the whole caption already")


def read_filters(embeds: Options, find: Callable[[str], str]) -> list[str]:
    """Expressions of caption_filter_list: a list, or the path of a .json or .txt file with one.

    `find` gives a file's text and raises OSError where it is not found.
    """
    if "caption_filter_list" not in embeds:
        return []
    given = embeds.value("caption_filter_list")
    try:
        if isinstance(given, str):
            text = find(read(Kind.TEXT, given))
            given = json.loads(text) if given.endswith(".json") else text.splitlines()
        found = _expressions(given)
    except (OSError, ValueError) as error:
        embeds.refused("caption_filter_list", str(error))
        return []
    embeds.mapped("caption_filter_list", words=f"{len(found)} expressions -> captions.filters of every data set")
    return found


def _expressions(given: Any) -> list[str]:
    """Expressions that only cut.

    Raises ValueError where one replaces, or is none.
    """
    if not isinstance(given, list) or not all(isinstance(line, str) for line in given):
        raise ValueError("is no list of expressions")
    for line in given:
        if re.match(r"s/.*/.*/$", line):
            raise ValueError(f"{line!r} replaces text: only cutting is here, change the captions themselves")
        try:
            re.compile(line)
        except re.error as error:
            raise ValueError(f"{line!r} is no expression: {error}") from error
    return [line for line in given if line]
