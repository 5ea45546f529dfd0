"""Where somebody logs in by a token."""

from __future__ import annotations

from starlette.responses import HTMLResponse

from oarlock.report.markup import element, with_code
from oarlock.web.drawn.document import document

HOW = (
    "`kubectl create token ACCOUNT -n NAMESPACE` makes one for a ServiceAccount; of your own, `kubectl oidc-login get-token` "
    "or your cloud's own command has it."
)


def login_page(then: str, trouble: str = "", status: int = 200) -> HTMLResponse:
    """The form; `then` is where it leads, `trouble` why the last try has not."""
    form = element(
        "form",
        element("input", type="hidden", name="then", value=then),
        element("label", "Token", for_="token"),
        element(
            "input",
            type="password",
            name="token",
            id="token",
            required=True,
            autofocus=True,
            autocomplete="off",
            spellcheck="false",
            aria_describedby="how",
        ),
        element("button", "Log in"),
        method="post",
        action="/login",
        class_="login",
    )
    main = element(
        "main",
        element("h1", "Log in to Oarlock"),
        element("p", trouble, class_="bad", role="alert") if trouble else None,
        form,
        element("p", with_code(HOW), id="how", class_="dim"),
        element(
            "p",
            "You see and do what this token may, and nothing else. Your browser keeps it, encrypted, for an hour at most.",
            class_="dim",
        ),
        class_="notice",
    )
    return HTMLResponse(document("Log in to Oarlock", main), status)
