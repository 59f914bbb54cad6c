"""What building the site checks beside links: public names that are not in the reference, and anything from outside."""

import logging
import re
from pathlib import Path
from typing import Any

import griffe

log = logging.getLogger("mkdocs.hooks.headatlas")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|input)\b[^>]*?\bsrc\s*=\s*["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref\s*=\s*["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:@import|url\()\s*["']?((?:https?:)?//[^"')\s]+)"""
    r"""|["'](https?://[^"'\s]+\.m?js)["']""",  # a script that a script loads
    re.IGNORECASE,
)


DIAGRAMS = re.compile("<!-- Load mathjax -->.*?<!-- End of mermaid configuration -->", re.DOTALL)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Notebooks come with scripts for formulas and diagrams, which would be fetched; ours have neither."""
    return DIAGRAMS.sub("", output) if page.file.src_uri.endswith(".ipynb") else output


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    for page, address in outside(site):
        log.warning(f"{page} loads {address}: a page must not need the network")
    for name in missing(site, Path(config["config_file_path"]).parent / "src"):
        log.warning(f"{name} is public, but not in the reference: it has no docstring, or no place there")


def outside(site: Path) -> list[tuple[str, str]]:
    """Scripts, styles, fonts and images that pages and styles would fetch."""
    files = [p for p in sorted(site.rglob("*")) if p.suffix in (".html", ".css")]
    return [
        (str(p.relative_to(site)), next(filter(None, m.groups())))
        for p in files
        for m in LOADED.finditer(p.read_text(encoding="utf-8"))
    ]


def missing(site: Path, source: Path) -> list[str]:
    """Public names without an anchor in the reference."""
    pages = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="(headatlas\.[\w.]+)"', pages))
    return [name for name in public_names(source) if name not in anchors]


def public_names(source: Path) -> list[str]:
    """What `headatlas` exports, every method, the figures, the accessor and `headatlas.testing`; members of classes."""
    from headatlas.methods import methods

    package = griffe.load("headatlas", search_paths=[source], resolve_aliases=True)
    names = [f"headatlas.{name}" for name, method in methods().items() if method.source == "headatlas"]
    chosen = {f"headatlas.{name}": package[name] for name in package.exports or () if name != "figures"}
    drawn = {
        n: m
        for n, m in package["figures"].members.items()
        if m.is_alias and m.target_path.startswith("headatlas.figures.")
    }
    chosen |= {f"headatlas.figures.{n}": m for n, m in drawn.items()}
    chosen |= {
        f"headatlas.testing.{n}": m
        for n, m in package["testing"].members.items()
        if not n.startswith("_") and not m.is_alias and not m.is_attribute
    }
    for place in ("results.accessor.Heads", "methods.method.Method"):
        chosen[f"headatlas.{place}"] = package[place]
    for name, item in chosen.items():
        names.append(name)
        if item.is_class:
            names += [
                f"{name}.{n}" for n, m in item.members.items() if not n.startswith("_") and not _described(item, m)
            ]
    return names


def _described(owner: Any, member: Any) -> bool:
    """A plain attribute that the class's own docstring tells."""
    if not member.is_attribute or "property" in member.labels:
        return False
    text = owner.docstring.value if owner.docstring else ""
    return bool(re.search(rf"\b{member.name}\b", text))
