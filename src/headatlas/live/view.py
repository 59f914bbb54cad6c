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
    """Serve a page to try prompts on a model, in the background. In a notebook it is shown in a frame.

    Args:
        model: what `load` returned, or what it takes.
        atlas: an atlas of this model, or its folder, whose maps are then on the page too.
        host: address to listen on. With any other than this machine's, everybody who knows the token has access.
        port: port to listen on; 0 takes a free one.
        open_page: whether to open the page in a browser (default: unless it is shown in a notebook).

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
    """Make the server of a page without starting it."""
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
    # Raises an error for models without a tokenizer, which cannot read prompts.
    _ = lm.tokenizer
    results: Any = {} if folder is None else folder.results
    info = {"model": about(lm)} if folder is None else folder.info
    check_same(lm, info)
    text = page(results, info, tab=live_tab(lm))
    return Server(
        Live(lm, None if isinstance(model, LM) else str(model)), lambda: text, host=host, port=port, framed=framed
    )


def about(lm: LM) -> dict[str, Any]:
    """Return what the page shows about a model without an atlas."""
    names = ("name", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_model")
    return {name: getattr(lm, name) for name in names}


def check_same(lm: LM, info: Any) -> None:
    """Check that an atlas fits a model: raise if the number of heads differs, warn if the name does."""
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
