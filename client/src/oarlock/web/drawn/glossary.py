"""The view of the words of the house, and the link that leads to one from where it stands first."""

from __future__ import annotations

from oarlock.glossary import WORDS, anchor, meaning
from oarlock.report.markup import Child, Html, element, joined, with_code
from oarlock.report.parts import row, table
from oarlock.web.ask import View

PATH = "/words"
_COLUMNS = ("Word", "What it means here")


def glossary() -> View:
    """All words, each with an address of its own."""
    firsts = {words: words.partition(",")[0] for words in WORDS}
    rows = (
        row(_COLUMNS, [element("strong", words), with_code(meaning(first))], id=anchor(first))
        for words, first in firsts.items()
    )
    intro = element(
        "p", "What words of this page, of statuses and of messages mean, where they mean something of their own."
    )
    return View(title="Words", body=joined(element("h1", "Words"), intro, table(_COLUMNS, rows)))


def word(name: str, said: Child = None) -> Html:
    """A word, as it is `said` there, that leads to what it means. Raises KeyError for one that is not told."""
    told = meaning(name).replace("`", "")
    return element("a", said or name, href=f"{PATH}#{anchor(name)}", class_="word", title=told)
