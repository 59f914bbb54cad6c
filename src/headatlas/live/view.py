"""Start the live page: from Python, in a notebook, and for the command."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headatlas.errors import BadArgument, MissingExtra, check_count

if TYPE_CHECKING:
    from headatlas.live.server import Server
    from headatlas.models.lm import LM
    from headatlas.results.atlas import Atlas

log = logging.getLogger(__name__)


def view(
    model: LM | str | Path = "smollm2",
    atlas: Atlas | str | Path | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    host: str = "127.0.0.1",
    port: int = 0,
    open_page: bool | None = None,
) -> Server:
    """A page to try prompts on a model, in the background. In a notebook it is shown in a frame.

    Args:
        model: what `load` returned, or what it takes.
        atlas: an atlas of this model, or its folder: its maps are on the page too.
        host: where to listen. Anything but this machine lets others in who know the address's token.
        port: 0 takes a free one.
        open_page: open it in a browser. By default where there is no notebook to show it in.

    Returns:
        A `Server`: `.url` is its address, `.stop()` ends it.

    Example:
        >>> ha.view("smollm2", "atlas")
    """
    server = make_server(model, atlas, device=device, dtype=dtype, host=host, port=port, framed=_in_notebook())
    server.start()
    if not _in_notebook() if open_page is None else open_page:
        webbrowser.open(server.url)
    return server


def make_server(
    model: LM | str | Path,
    atlas: Atlas | str | Path | None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    host: str = "127.0.0.1",
    port: int = 0,
    framed: bool = False,
) -> Server:
    """The server of a page, not started yet."""
    check_count("port", port, 0, 65535)
    try:
        import starlette
        import uvicorn  # noqa: F401
    except ImportError as e:
        raise MissingExtra(f"view needs {e.name}, which is not installed: pip install 'headatlas[view]'") from e
    del starlette
    from headatlas.live.answers import Live
    from headatlas.live.server import Server
    from headatlas.live.tab import live_tab
    from headatlas.models.lm import LM
    from headatlas.models.loading import load
    from headatlas.report.page import page
    from headatlas.results.atlas import open_atlas

    folder = open_atlas(atlas) if isinstance(atlas, str | Path) else atlas
    lm = model if isinstance(model, LM) else load(model, device=device, dtype=dtype)
    _ = lm.tokenizer  # a model without one cannot read prompts, and says so
    results: Any = {} if folder is None else folder.results
    info = {"model": about(lm)} if folder is None else folder.info
    check_same(lm, info)
    text = page(results, info, tab=live_tab(lm))
    return Server(
        Live(lm, None if isinstance(model, LM) else str(model)), lambda: text, host=host, port=port, framed=framed
    )


def about(lm: LM) -> dict[str, Any]:
    """What the page says of a model that has no atlas."""
    names = ("name", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_model")
    return {name: getattr(lm, name) for name in names}


def check_same(lm: LM, info: Any) -> None:
    """That an atlas is of this model: its heads must be, and if its weights are not, that is told."""
    model = info.get("model") or {}
    for name in ("n_layers", "n_heads"):
        if name in model and model[name] != getattr(lm, name):
            raise BadArgument(
                f"atlas is of {model.get('name')!r} with {model[name]} {name.removeprefix('n_')},"
                f" but the model {lm.name!r} has {getattr(lm, name)}"
            )
    if model.get("name") not in (None, lm.name):
        log.warning("the atlas is of %r, the model is %r", model["name"], lm.name)


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
