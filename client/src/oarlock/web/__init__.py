"""The page: `oarlock web` on a laptop, and in a cluster for who logs in by a token. Only `oarlock[web]` has what it needs.

To add a view, write `views/NAME.py` with a function `draw(ask: Ask) -> View`, name it there as `Page("/path/{name}", draw)`,
and add that to `PAGES` in app.py: it is answered at its path, and live at `/live` + path, by the same function.
`ask.path` and `ask.query(...)` are what the address says, bounded. `ask.watched(Watched(path, keep=...))` is a list of the
API that one watch keeps current for all who may read it: the view is drawn again when it changes, once for all.
`ask.cluster` makes requests as the caller (SDK: `Client(cluster=ask.cluster)`); who touches it is drawn for him alone.
A View has a body, and Regions: elements whose children have ids. Only children whose markup has changed are sent.
What is drawn stands in `drawn/`: pure, by `oarlock.report.markup` and the report's functions; views/jobs.py is the example.
`Read(path, answer)` returns any Response, such as a picture; `Post(path, act)` gets the form, its CSRF token checked before.
A form has `field(ask.csrf())`; a page that asks before it acts has an address of its own, so that no shared view needs one.
"""
