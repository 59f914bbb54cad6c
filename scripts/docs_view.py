"""Take three pictures of the live page on the default model, for README.md and the docs: `make docs-view`.

They follow a reader's questions: which heads does an answer depend on, what does the strongest one attend to and write,
what changes without it, and do random heads have the same effect?
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

import headatlas as ha

FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def save_picture(tab: Page, name: str, first: str, last: str) -> None:
    """Save a picture of the page from the top of one element to the bottom of another."""
    a, b = (tab.locator(e).bounding_box() for e in (first, last))
    assert a is not None
    assert b is not None
    area = {"x": a["x"] - 12, "y": a["y"] - 12, "width": 890, "height": b["y"] + b["height"] - a["y"] + 24}
    tab.screenshot(path=FIGURES / f"{name}.png", clip=area)


def take_pictures(tab: Page) -> None:
    tab.get_by_role("button", name="A capital").click()
    expect(tab.locator(".said.before")).to_contain_text("Rome", timeout=60_000)
    tab.click("#live-measure")
    strongest_head = tab.locator("#live-maps .panel").nth(2).locator(".detail button").first
    expect(strongest_head).to_be_visible(timeout=300_000)
    strongest_head.click()
    expect(tab.locator("#live-writes tbody tr")).to_have_count(10, timeout=60_000)
    # No element shows when the maps are drawn.
    tab.wait_for_timeout(1000)
    save_picture(tab, "view-heads", "#live-ask", "#live-maps")
    save_picture(tab, "view-head", "#live-head-title", "#live-thumbnails")
    tab.click("#live-toggle")
    expect(tab.locator(".said.after")).to_be_visible(timeout=60_000)
    tab.click("#live-control")
    expect(tab.locator("#live-control-result .dots")).to_be_visible(timeout=120_000)
    expect(tab.locator(".said.after")).not_to_contain_text("…", timeout=60_000)
    # The answer and its control fit into one picture without the maps.
    tab.add_style_tag(content="#live-maps-part { display: none }")
    save_picture(tab, "view-switched", "#live-next", "#live-control-result")


def main(model: str = "smollm2") -> None:
    server = ha.view(model, open_page=False)
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            size = {"width": 1300, "height": 3400}
            tab = browser.new_context(viewport=size, device_scale_factor=1.25).new_page()
            tab.goto(server.url)
            take_pictures(tab)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
