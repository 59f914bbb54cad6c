"""Check, when the site is built, that the reference has all public names and that no page loads anything external."""

import logging
import re
from pathlib import Path
from typing import Any

import griffe

log = logging.getLogger("mkdocs.hooks.headatlas")
EXTERNAL_ADDRESS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|input)\b[^>]*?\bsrc\s*=\s*["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref\s*=\s*["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:@import|url\()\s*["']?((?:https?:)?//[^"')\s]+)"""
    r"""|["'](https?://[^"'\s]+\.m?js)["']""",  # a script loaded by a script
    re.IGNORECASE,
)


MATHJAX_AND_MERMAID = re.compile("<!-- Load mathjax -->.*?<!-- End of mermaid configuration -->", re.DOTALL)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Remove the external scripts for formulas and diagrams from notebooks, which have neither."""
    return MATHJAX_AND_MERMAID.sub("", output) if page.file.src_uri.endswith(".ipynb") else output


def on_post_build(config: Any) -> None:
    """Warn about external addresses and missing names; `mkdocs build --strict` fails on warnings."""
    site = Path(config["site_dir"])
    for page, address in external_addresses(site):
        log.warning(f"{page} loads {address}: a page must not need the network")
    for name in missing_names(site, Path(config["config_file_path"]).parent / "src"):
        log.warning(f"{name} is public, but not in the reference: it has no docstring, or no page lists it")


def external_addresses(site: Path) -> list[tuple[str, str]]:
    """List scripts, styles, fonts and images that pages and styles would fetch."""
    files = [p for p in sorted(site.rglob("*")) if p.suffix in (".html", ".css")]
    return [
        (str(p.relative_to(site)), next(filter(None, m.groups())))
        for p in files
        for m in EXTERNAL_ADDRESS.finditer(p.read_text(encoding="utf-8"))
    ]


def missing_names(site: Path, source: Path) -> list[str]:
    """List public names without an anchor in the reference."""
    pages = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="(headatlas\.[\w.]+)"', pages))
    return [name for name in public_names(source) if name not in anchors]


def public_names(source: Path) -> list[str]:
    """List exports of `headatlas`, methods, figures, the accessor, `headatlas.testing`, and members of classes."""
    from headatlas.methods import methods

    package = griffe.load("headatlas", search_paths=[source], resolve_aliases=True)
    names = [f"headatlas.{name}" for name, method in methods().items() if method.source == "headatlas"]
    public = {f"headatlas.{name}": package[name] for name in package.exports or () if name != "figures"}
    figure_functions = {
        n: m
        for n, m in package["figures"].members.items()
        if m.is_alias and m.target_path.startswith("headatlas.figures.")
    }
    public |= {f"headatlas.figures.{n}": m for n, m in figure_functions.items()}
    public |= {
        f"headatlas.testing.{n}": m
        for n, m in package["testing"].members.items()
        if not n.startswith("_") and not m.is_alias and not m.is_attribute
    }
    for place in ("results.accessor.Heads", "methods.method.Method"):
        public[f"headatlas.{place}"] = package[place]
    for name, item in public.items():
        names.append(name)
        if item.is_class:
            names += [
                f"{name}.{n}" for n, m in item.members.items() if not n.startswith("_") and not _described(item, m)
            ]
    return names


def _described(owner: Any, member: Any) -> bool:
    """Check that a member is a plain attribute which the docstring of its class mentions."""
    if not member.is_attribute or "property" in member.labels:
        return False
    text = owner.docstring.value if owner.docstring else ""
    return bool(re.search(rf"\b{member.name}\b", text))
