"""The live page in a real browser: what a reader does, and every number against the model itself."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
import xarray as xr
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headatlas.live.answers import Live
from headatlas.live.record import read_prompts, record
from headatlas.live.server import Server
from headatlas.live.tab import live_tab
from headatlas.live.view import make_server
from headatlas.models.attention import attention_of
from headatlas.models.lm import LM
from headatlas.report.page import page
from tests.models.tiny import TINY, VOCABULARY, build
from tests.report.test_page import chrome, needs_browser, playwright

__all__ = ["chrome"]  # a fixture
pytestmark = needs_browser
PROMPT = "w1 w5 w9 w2 w30 w7"
HOSTILE = ("</script><script>alert(1)</script>", "<img/src=x/onerror=alert(2)>")
expect = playwright.expect
Open = Callable[..., "playwright.Page"]


def hostile_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word; a page that took two of them for markup would run them."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>", *HOSTILE] + [f"w{i}" for i in range(VOCABULARY - 6)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="<unk>")


def make_lm() -> LM:
    return LM(build(TINY[0]), hostile_tokenizer(), HOSTILE[0])


@pytest.fixture(scope="module")
def lm() -> LM:
    """The same weights as the server's model, which has heads switched while it answers."""
    return make_lm()


def atlas(lm: LM) -> dict[str, xr.Dataset]:
    """A map whose heads fall from L0.H0 on."""
    effect = -np.arange(lm.n_layers * lm.n_heads, dtype=float).reshape(1, lm.n_layers, lm.n_heads)
    coords = {"task": ["math"], "layer": range(lm.n_layers), "head": range(lm.n_heads)}
    return {"taylor": xr.Dataset({"contribution": (("task", "layer", "head"), effect)}, coords, {"method": "taylor"})}


def serve(lm: LM, port: int = 0) -> Server:
    text = page(atlas(lm), {"model": {"name": lm.name}}, tab=live_tab(lm))
    return Server(Live(lm, "some/model"), lambda: text, host="127.0.0.1", port=port).start()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = serve(make_lm())
    yield started
    started.stop()


def go(
    chrome: "playwright.Browser", wrong: list[str], url: str, expected: str = "", **context: object
) -> "playwright.Page":
    """Open an address. What the page logs (but what is expected), throws or asks of others is put on the list."""
    options = {"viewport": {"width": 1300, "height": 3000}, "permissions": ["clipboard-read", "clipboard-write"]}
    tab = chrome.new_context(**options | context).new_page()
    page_origin = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    tab.on("console", lambda m: None if expected and re.search(expected, m.text) else wrong.append(m.text))
    tab.on("pageerror", lambda e: wrong.append(f"error: {e}"))
    tab.on("dialog", lambda d: (wrong.append(f"dialog: {d.message}"), d.dismiss()))
    tab.on("request", lambda r: None if r.url.startswith((page_origin, "data:", "blob:")) else wrong.append(r.url))
    tab.goto(url)
    return tab


@pytest.fixture
def opened(chrome: "playwright.Browser") -> Iterator[Open]:
    wrong: list[str] = []
    before = chrome.contexts
    yield partial(go, chrome, wrong)
    for context in chrome.contexts:
        if context not in before:
            context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def shared(chrome: "playwright.Browser", server: Server) -> tuple["playwright.Page", list[str]]:
    wrong: list[str] = []
    return go(chrome, wrong, server.url), wrong


@pytest.fixture
def tab(shared: tuple["playwright.Page", list[str]]) -> Iterator["playwright.Page"]:
    """The empty page, opened once for all tests that can begin with it: opening takes seconds."""
    page, wrong = shared
    page.evaluate("location.hash = ''; document.getElementById('live-scale').value = 0;")
    expect(page.locator("#live-steps")).to_be_visible()
    yield page
    assert wrong == []


def type_prompt(tab: "playwright.Page", prompt: str = PROMPT) -> None:
    tab.fill("#live-prompt", prompt)
    expect(tab.locator("#live-text span")).to_have_count(len(prompt.split()))
    expect(tab.locator("#live-next tbody tr").first).to_be_visible()


def rows(tab: "playwright.Page") -> dict[str, list[float]]:
    """The table of next tokens: probabilities as it is and, if heads are switched, after."""
    expect(tab.locator("#live-next")).not_to_have_class(re.compile("waiting"))
    lines = [r.locator("td").all_inner_texts() for r in tab.locator("#live-next tbody tr").all()]
    return {line[0]: [float(v) for v in line[1:]] for line in lines}


@torch.no_grad()
def next_p(lm: LM, prompt: str = PROMPT) -> dict[str, float]:
    p = lm.model(**lm.batch(prompt)).logits[0, -1].softmax(-1)
    return {lm.tokenizer.decode([i]): v for i, v in enumerate(p.tolist())}


def pick(tab: "playwright.Page", head: str) -> None:
    """Select a head by a click on its cell in the first live map."""
    layer, number = (int(v) for v in re.findall(r"\d+", head))
    chart = tab.locator("#live-maps .panel").first.locator(".js-plotly-plot")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").bounding_box()
    n_rows, n_columns = chart.evaluate("d => [d.data[0].y.length, d.data[0].x.length]")
    tab.mouse.move(box["x"] + 1, box["y"] + 1)
    position = box["x"] + (number + 0.5) * box["width"] / n_columns, box["y"] + (layer + 0.5) * box["height"] / n_rows
    tab.mouse.move(*position)
    expect(tab.locator("#tip")).to_contain_text(head)
    tab.mouse.click(*position)
    expect(tab.locator("#live-head-title")).to_contain_text(head)
    expect(tab.locator("#live-matrix")).to_be_visible()


def switch(tab: "playwright.Page", head: str) -> None:
    pick(tab, head)
    tab.click("#live-toggle")
    expect(tab.locator("#live-heads .chip")).to_contain_text([head])
    expect(tab.locator("#live-next th")).to_have_count(3)


# --- what is shown


def test_an_empty_page_teaches_and_its_prompts_work(tab: "playwright.Page") -> None:
    expect(tab.locator("#live-steps")).to_be_visible()
    expect(tab.locator("#live-examples button")).to_have_count(3)
    tab.get_by_role("button", name="A sum").click()
    expect(tab.locator("#live-next tbody tr").first).to_be_visible()
    expect(tab.locator("#live-steps")).to_be_hidden()


def test_typing_shows_what_the_model_says_next(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    expected = next_p(lm)
    shown = rows(tab)
    assert len(shown) == 10
    assert set(shown) == set(sorted(expected, key=lambda t: -expected[t])[:10])
    for token, (p,) in shown.items():
        assert p == pytest.approx(expected[token], abs=5e-4)
    text = lm.generate(PROMPT, 24)
    expect(tab.locator(".said.before")).to_contain_text(text[:30])


def test_hovering_a_token_shows_where_the_head_looks(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    pick(tab, "L1.H3")
    attention = attention_of(lm, torch.tensor(lm.encode(PROMPT)))[1][0, 3]  # [query, key]
    spans = tab.locator("#live-text span")
    query = 4
    spans.nth(query).hover()
    expect(spans.nth(query)).to_have_class(re.compile("pointed"))
    for key in range(6):
        value = attention[query, key] if key <= query else attention[key, query]
        shown = float(spans.nth(key).get_attribute("title").split()[0].replace("−", "-"))
        assert shown == pytest.approx(value.item(), rel=0.01, abs=1e-3)  # half precision, three digits
    expect(tab.locator("#live-thumbnails button")).to_have_count(lm.n_heads)
    spans.nth(2).click()
    expect(tab.locator("#live-writes")).to_contain_text(f"at “{PROMPT.split()[2]}”")


def test_a_target_is_followed_and_can_stand_against_another(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    tab.fill("#live-target", "w3")
    expect(tab.locator("#live-answer")).to_contain_text("log P(w3):")
    tab.fill("#live-other", "w4")
    expect(tab.locator("#live-answer")).to_contain_text("log P(w3) − log P(w4):")
    p = next_p(lm)
    shown = float(tab.locator("#live-answer b").first.inner_text().replace("−", "-"))
    assert shown == pytest.approx(float(np.log(p["w3"] / p["w4"])), rel=0.01, abs=1e-3)


# --- heads switched


def test_a_head_is_switched_off_undone_and_redone(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    switch(tab, "L1.H3")
    before = next_p(lm)
    with lm.patched("L1.H3"):
        after = next_p(lm)
    for token, (p, q) in rows(tab).items():
        assert p == pytest.approx(before[token], abs=5e-4)
        assert q == pytest.approx(after[token], abs=5e-4)
    assert max(abs(before[t] - after[t]) for t in before) > 1e-3  # there was something to see
    tab.click("#live-undo")
    expect(tab.locator("#live-next th")).to_have_count(2)
    tab.click("#live-redo")
    expect(tab.locator("#live-next th")).to_have_count(3)
    tab.click("#live-maps")  # out of the text field
    tab.keyboard.press("Control+z")
    expect(tab.locator("#live-heads .chip")).to_have_count(0)


def test_a_set_of_the_atlas_a_layer_and_a_scale(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    tab.select_option("#live-set", label="math: highest by Gradients (Taylor): contribution")
    tab.fill("#live-count", "4")
    tab.locator("#live-scale").fill("0.5")
    tab.click("#live-add")
    expect(tab.locator("#live-heads .chip")).to_have_count(4)
    expect(tab.locator("#live-next th")).to_have_count(3)
    gate = torch.ones(lm.n_layers, lm.n_heads)
    gate[0, :4] = 0.5
    with lm.gated(gate):
        after = next_p(lm)
    for token, (_, q) in rows(tab).items():
        assert q == pytest.approx(after[token], abs=5e-4)
    tab.click("#live-clear")
    pick(tab, "L2.H0")
    tab.select_option("#live-set", "layer")
    tab.click("#live-add")
    expect(tab.locator("#live-heads .chip")).to_have_count(lm.n_heads)
    tab.click("#live-clear")
    tab.select_option("#live-set", "kv")
    tab.click("#live-add")
    expect(tab.locator("#live-heads .chip")).to_have_count(lm.n_heads // lm.n_kv_heads)


def test_x_and_shift_click_switch_heads_in_the_atlas_too(tab: "playwright.Page") -> None:
    type_prompt(tab)
    pick(tab, "L0.H1")
    tab.locator("#live-maps .panel").first.focus()
    tab.keyboard.press("x")
    expect(tab.locator("#live-heads .chip")).to_contain_text(["L0.H1"])
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#card h2")).to_have_text("L0.H2")
    tab.get_by_role("tab", name="Atlas").click()
    expect(tab.locator("#card h2")).to_have_text("L0.H2")
    tab.click("#live-toggle")
    tab.get_by_role("tab", name="Try a prompt").click()
    expect(tab.locator("#live-heads .chip")).to_have_count(2)


def test_maps_are_measured_and_compared_with_random_heads(tab: "playwright.Page", lm: LM) -> None:
    type_prompt(tab)
    tab.fill("#live-target", "w3")
    expect(tab.locator("#live-answer")).to_contain_text("log P(w3):")
    tab.click("#live-measure")
    best = tab.locator("#live-maps .panel").nth(2).locator(".detail button").first
    expect(best).to_be_visible(timeout=20000)
    name, value = best.inner_text().split()
    before = np.log(next_p(lm)["w3"])
    lost = {}
    for layer in range(lm.n_layers):
        for head in range(lm.n_heads):
            with lm.patched((layer, head)):
                lost[f"L{layer}.H{head}"] = before - np.log(next_p(lm)["w3"])
    assert lost[name] == pytest.approx(max(lost.values()), rel=1e-3)
    assert float(value) == pytest.approx(lost[name], rel=0.01)
    best.click()
    tab.click("#live-toggle")
    expect(tab.locator("#live-control")).to_be_enabled()
    tab.click("#live-control")
    result = tab.locator("#live-control-result")
    expect(result).to_contain_text("None of them lowers the answer as much: p = 0.167", timeout=20000)
    expect(result).to_contain_text("The 5 other heads of its layer")
    expect(result.locator(".dots i")).to_have_count(6)


def test_no_head_is_selected_until_heads_are_measured(opened: Open, server: Server) -> None:
    tab = opened(server.url)
    heading = tab.locator("#card h2")
    expect(heading).to_have_text("No head selected")
    type_prompt(tab)
    expect(heading).to_have_text("No head selected")
    expect(tab.locator("#live-head")).to_be_hidden()
    tab.select_option("#live-set", "layer")
    expect(tab.locator("#live-add")).to_be_disabled()  # there is no layer of a selected head
    tab.click("#live-measure")
    best = tab.locator("#live-maps .panel").nth(2).locator(".detail button").first
    expect(best).to_be_visible(timeout=20000)
    expect(heading).to_have_text(best.inner_text().split()[0])
    expect(tab.locator("#live-matrix")).to_be_visible()
    expect(tab.locator("#live-add")).to_be_enabled()


def test_maps_say_which_heads_were_switched_and_the_measured_one_stays(tab: "playwright.Page") -> None:
    type_prompt(tab)
    tab.click("#live-measure")
    panels = tab.locator("#live-maps .panel")
    direct, slope, exact = (panels.nth(i) for i in range(3))
    best = exact.locator(".detail button").first
    expect(best).to_be_visible(timeout=20000)
    measured, z = best.inner_text(), exact.locator(".js-plotly-plot").evaluate("d => d.data[0].z.flat()")
    for panel in (direct, slope, exact):
        expect(panel.locator(".switches")).to_have_text("")
    switch(tab, "L1.H3")
    for panel in (direct, slope):
        expect(panel.locator(".switches")).to_have_text("with L1.H3 off")
    expect(exact.locator(".switches")).to_have_text("before the switch: all heads on")
    expect(best).to_have_text(measured)
    assert exact.locator(".js-plotly-plot").evaluate("d => d.data[0].z.flat()") == z
    expect(tab.locator("#live-measure")).to_have_text("Measure again")
    tab.click("#live-measure")
    expect(exact.locator(".switches")).to_have_text("with L1.H3 off", timeout=20000)
    expect(tab.locator("#live-measure")).to_be_hidden()
    tab.click("#live-clear")
    expect(exact.locator(".switches")).to_have_text("before the switch: with L1.H3 off")
    for panel in (direct, slope):
        expect(panel.locator(".switches")).to_have_text("")
    type_prompt(tab, "w1 w2")
    expect(best).to_be_hidden()  # of another prompt
    expect(exact.locator(".switches")).to_have_text("")


# --- sharing


def test_a_link_brings_back_what_it_was_copied_from(opened: Open, tab: "playwright.Page") -> None:
    type_prompt(tab)
    tab.fill("#live-target", "w3")
    expect(tab.locator("#live-answer")).to_contain_text("log P(w3):")
    switch(tab, "L2.H5")
    tab.click("#live-link")
    expect(tab.locator("#live-share-state")).to_have_text("Link copied.")
    other = opened(tab.evaluate("navigator.clipboard.readText()"))
    expect(other.locator("#live-heads .chip")).to_contain_text(["L2.H5"])
    expect(other.locator("#live-next th")).to_have_count(3)
    expect(other.locator("#live-prompt")).to_have_value(PROMPT)
    expect(other.locator("#card h2")).to_have_text("L2.H5")
    assert rows(other) == rows(tab)


@pytest.mark.parametrize(
    "fragment",
    [
        '{"prompt": 3, "heads": [[9, 9, 0], "x", [0, 0, 7]], "selected": 1e9}',
        "not json",
        '{"heads": {"0": 1}}',
        "null",
        "%",
    ],
)
def test_a_fragment_that_means_nothing_is_an_empty_page(tab: "playwright.Page", fragment: str) -> None:
    type_prompt(tab)
    tab.evaluate("fragment => { location.hash = `live=${fragment}`; }", fragment)
    expect(tab.locator("#live-steps")).to_be_visible()
    expect(tab.locator("#live-heads .chip")).to_have_count(0)


def test_python_json_and_picture_hold_what_is_shown(tab: "playwright.Page") -> None:
    type_prompt(tab)
    switch(tab, "L1.H3")
    tab.click("#live-python")
    expect(tab.locator("#live-share-state")).to_have_text("Script copied.")
    text = tab.evaluate("navigator.clipboard.readText()")
    assert "gate[1, 3] = 0.0" in text  # tests/live/test_answers.py runs such scripts
    assert repr(PROMPT) in text
    with tab.expect_download() as download:
        tab.click("#live-json")
    saved = json.loads(Path(download.value.path()).read_text())
    assert (saved["prompt"], saved["switched"]) == (PROMPT, [[1, 3, 0]])
    assert len(saved["attention"]) == len(PROMPT.split())
    with tab.expect_download() as download:
        tab.click("#live-png")
    assert Path(download.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# --- what goes wrong


def test_a_server_that_ends_is_missed_and_found_again(opened: Open) -> None:
    server = serve(make_lm())
    tab = opened(server.url, expected="ERR_CONNECTION_REFUSED|403|ERR_INCOMPLETE|ERR_EMPTY|RESET")
    type_prompt(tab)
    port, token = urlsplit(server.url).port, server.guard.token
    server.stop()
    tab.fill("#live-prompt", "w1 w2")
    expect(tab.locator("#live-lost")).to_contain_text("does not answer")
    stranger = serve(make_lm(), port)
    expect(tab.locator("#live-lost")).to_contain_text("restarted")
    stranger.stop()
    server = Server(Live(make_lm()), lambda: "", host="127.0.0.1", port=port)
    server.guard.token = token
    server.start()
    try:
        expect(tab.locator("#live-lost")).to_be_hidden(timeout=10000)
        expect(tab.locator("#live-text span")).to_have_count(2)
    finally:
        server.stop()


def test_hostile_words_are_words(tab: "playwright.Page") -> None:
    type_prompt(tab, f"w1 {HOSTILE[0]} {HOSTILE[1]}")
    tab.fill("#live-target", HOSTILE[1])
    expect(tab.locator("#live-answer")).to_contain_text(HOSTILE[1])
    switch(tab, "L0.H0")
    expect(tab.locator("#live-text")).to_contain_text(HOSTILE[0])
    assert tab.locator("#live img").count() == 0


def test_a_prompt_over_the_context_is_one_line(tab: "playwright.Page") -> None:
    type_prompt(tab)
    tab.fill("#live-prompt", "w1 " * 65)
    expect(tab.locator("#live-message")).to_have_text("texts[0] is 65 tokens long, but the model's context is 64")
    expect(tab.locator("#live-results")).to_be_hidden()  # the numbers of the prompt before
    for name in ("next", "answer", "continuation"):
        expect(tab.locator(f"#live-{name}")).to_have_text("")
    type_prompt(tab)
    expect(tab.locator("#live-message")).to_have_text("")


def test_an_error_after_a_switch_leaves_no_numbers_of_the_model_before(opened: Open, server: Server) -> None:
    tab = opened(server.url)
    type_prompt(tab)
    switch(tab, "L1.H3")
    expect(tab.locator("#live-effect")).to_contain_text("Next token")
    broken = '{"error": "out of memory"}\n'
    tab.route("**/ask", lambda route: route.fulfill(body=broken, content_type="application/x-ndjson"))
    tab.locator("#live-maps .panel").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("x")
    expect(tab.locator("#live-message")).to_have_text("out of memory")
    for name in ("next", "answer", "continuation", "effect", "writes"):
        expect(tab.locator(f"#live-{name}")).to_have_text("")
    expect(tab.locator("#live-matrix")).to_be_hidden()
    expect(tab.locator("#live-maps .detail button")).to_have_count(0)
    tab.unroute("**/ask")
    tab.click("#live-undo")
    expect(tab.locator("#live-next th")).to_have_count(3)
    expect(tab.locator("#live-maps .switches").first).to_have_text("with L1.H3 off")


def test_a_model_that_does_not_tell_where_it_looks_shows_the_rest(opened: Open) -> None:
    falcon = LM(build(next(t for t in TINY if t.id == "falcon-rw")), hostile_tokenizer(), "falcon")
    server = serve(falcon)
    try:
        tab = opened(server.url)
        type_prompt(tab)
        tab.locator("#live-maps .detail button").first.click()
        expect(tab.locator("#live-attention-state")).to_contain_text("cannot read the attention of")
        expect(tab.locator("#live-matrix")).to_be_hidden()
        expect(tab.locator("#live-writes tbody tr").first).to_be_visible()
        assert len(rows(tab)) == 10
    finally:
        server.stop()


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(opened: Open, server: Server, dark: bool) -> None:
    looks = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark" if dark else "light"}
    tab = opened(server.url, **looks)
    type_prompt(tab)
    tab.locator("#live-maps .detail button").first.click()
    expect(tab.locator("#live-matrix")).to_be_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


# --- without an atlas, and without a server


def test_a_model_without_an_atlas_has_the_prompt_alone(opened: Open) -> None:
    server = make_server(make_lm(), None).start()
    try:
        tab = opened(server.url)
        type_prompt(tab)
        switch(tab, "L1.H0")
        assert len(rows(tab)) >= 10
    finally:
        server.stop()


def test_recorded_prompts_are_tried_from_disk(opened: Open, lm: LM, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text(f"{PROMPT}\tw3\nw4 w5\n")
    path = tmp_path / "report.html"
    recorded = record(lm, atlas(lm), read_prompts(tmp_path / "prompts.txt"))
    path.write_text(page(atlas(lm), {"model": {"name": lm.name}}, tab=recorded))
    assert "connect-src" not in path.read_text().split("<body>")[0].split("<style>")[0]
    tab = opened(path.as_uri())
    expect(tab.locator("#live-prompt")).to_have_value(PROMPT)
    expected = next_p(lm)
    for token, (p,) in rows(tab).items():
        assert p == pytest.approx(expected[token], abs=5e-4)
    head = tab.locator("#live-recorded button").first
    name = head.inner_text()
    head.click()
    tab.click("#live-toggle")
    expect(tab.locator("#live-next th")).to_have_count(3)
    with lm.patched(name):
        after = next_p(lm)
    for token, (_, q) in rows(tab).items():
        assert q == pytest.approx(after[token], abs=5e-4)
    tab.click("#live-control")
    expect(tab.locator("#live-control-result")).to_contain_text("p = ")
    tab.get_by_role("button", name="w4 w5").click()
    expect(tab.locator("#live-text span")).to_have_count(2)
