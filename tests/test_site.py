"""The documentation as a site: built strictly, it has no dead links, no missing public name, nothing from outside."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parent.parent
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.xdist_group("site"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),  # of the generator
]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Fails on any warning, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
        config.plugins.on_shutdown()
    return folder


def test_every_page_is_built(site) -> None:
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert all((site / page).is_file() for page in pages)


def test_no_page_needs_the_network(site, hooks) -> None:
    assert hooks.external_addresses(site) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<img alt=x src=//example/x.png>",
        '<link rel="stylesheet" href="http://example/x.css">',
        "<style>@import 'https://example/x.css'</style>",
        "<style>a { background: url(https://example/x.woff2) }</style>",
        '<script>import("https://example/x.mjs")</script>',
    ],
)
def test_what_would_need_it_is_found(tmp_path, hooks, text) -> None:
    (tmp_path / "page.html").write_text(f'<a href="https://example">a link is fine</a>{text}')
    assert len(hooks.external_addresses(tmp_path)) == 1


@pytest.mark.skipif(CHROMIUM is None, reason="searching needs chromium on the path")
def test_search_works_from_disk(site) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.goto((site / "methods" / "gate.html").as_uri())
        page.click(".md-search__input")
        ready = "!document.querySelector('.md-search-result__meta').textContent.includes('Initializing')"
        page.wait_for_function(ready)
        page.keyboard.type("induction")
        page.wait_for_selector(".md-search-result__link[href*='methods/pattern.html']", state="attached")
        browser.close()


def test_every_public_name_is_in_the_reference(site, hooks) -> None:
    names = hooks.public_names(ROOT / "src")
    assert {"headatlas.gate", "headatlas.LM.gated", "headatlas.figures.forest_plot", "headatlas.load"} <= set(names)
    assert hooks.missing_names(site, ROOT / "src") == []


def test_a_public_name_without_a_place_is_found(tmp_path, hooks) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "python.html").write_text('<h2 id="headatlas.load">')
    missing = hooks.missing_names(tmp_path, ROOT / "src")
    assert "headatlas.load" not in missing
    assert "headatlas.run" in missing
