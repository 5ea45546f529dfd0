"""`oarlock web`: the page, on this machine."""

import threading
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from oarlock.cli.output import note, say
from oarlock.cli.reading import All
from oarlock.cli.verb import verb
from oarlock.errors import NotFoundError, NotNowError

if TYPE_CHECKING:
    from oarlock.client import Client


@verb()
def web(
    client: "Client",
    *,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port (default: 8270, or a free one)."),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="FOLDER",
            help="Where outputs of jobs are mounted here: for whole curves, pictures and logs of jobs that have ended.",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
    all_namespaces: All = False,
    operator_namespace: Annotated[
        str | None,
        typer.Option("--operator-namespace", metavar="NAME", help="Where the operator is (default: oarlock)."),
    ] = None,
) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C: jobs live, as the kubeconfig's user. Prints a link that has a key.

    Needs `oarlock[web]`.
    """
    from oarlock.cluster import jobs_path  # noqa: PLC0415 - as for all verbs

    try:
        from oarlock.web.access.link import LinkAuthenticator  # noqa: PLC0415 - only this verb needs the extra
        from oarlock.web.app import build  # noqa: PLC0415
        from oarlock.web.mounts import Mount  # noqa: PLC0415
        from oarlock.web.serve import listening, serve  # noqa: PLC0415
        from oarlock.web.settings import OPERATOR_NAMESPACE, Settings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        extra = "pip install 'oarlock[web]', or in a checkout './client[web]'"
        raise NotNowError(f"{error.name} is not installed here: {extra}") from error
    if path and not Path(path).is_dir():
        raise NotFoundError(f"{path} is no folder of this machine: name the one where outputs of jobs are mounted")
    namespace = None if all_namespaces else client.namespace
    # Who may see no job hears it here, with the exit code: not on the page alone.
    client.cluster.get(jobs_path(namespace), limit="1")
    listener = listening("127.0.0.1", port)
    taken = listener.getsockname()[1]
    access = LinkAuthenticator(client.cluster, port=taken)
    link = f"http://127.0.0.1:{taken}{access.link}"
    settings = Settings(
        namespace=namespace,
        actions=True,
        operator_namespace=operator_namespace or OPERATOR_NAMESPACE,
        outputs=(Mount(folder=Path(path)),) if path else (),
    )

    def started(_: object) -> None:
        say(link)
        note(f"-- {client.cluster.where}; Ctrl-C ends it")
        if browser:
            threading.Thread(target=webbrowser.open, args=(_hidden(link, Path(folder)),), daemon=True).start()

    with TemporaryDirectory(prefix="oarlock-web-", ignore_cleanup_errors=True) as folder:
        serve(build(settings, access), listener, started=started)


def _hidden(link: str, folder: Path) -> str:
    """The address of a file of this user alone that leads to the link: a browser's arguments are seen by all on a machine."""
    file = folder / "open.html"
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">', encoding="utf-8")
    return file.as_uri()
