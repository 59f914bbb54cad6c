"""Figures as they are drawn: nothing cut off, no text over another, files that are the same every time."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from headatlas import figures
from headatlas.errors import BadArgument
from headatlas.figures.all import pictures
from headatlas.figures.saving import write_figures
from headatlas.figures.style import PALETTES, save
from headatlas.methods._chance import none_above
from headatlas.results.about import by_kv_group
from tests.figures import synthetic
from tests.figures.made_tests import with_tests
from tests.figures.synthetic import SHAPES

REFERENCES = Path(__file__).parent / "references"


def check_layout(figure: Figure) -> None:
    """Every text lies inside the figure, and on no other text."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # places everything; the tests of palettes and looks paint too
    renderer = canvas.get_renderer()
    axes = [axis for a in figure.axes for axis in (a.xaxis, a.yaxis)]
    ticks = {id(x) for axis in axes for t in (*axis.majorTicks, *axis.minorTicks) for x in (t.label1, t.label2)}
    drawn_labels = {
        id(x) for axis in axes for t in axis._update_ticks() for x in (t.label1, t.label2)
    }  # matplotlib keeps spare ones
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    texts = [t for t in texts if id(t) not in ticks or id(t) in drawn_labels]
    boxes = [(t.get_text(), t.get_window_extent(renderer), t.get_rotation() % 90) for t in texts]
    width, height = canvas.get_width_height()
    for text, box, _ in boxes:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    upright = [(text, box) for text, box, turned in boxes if not turned]  # boxes of others are larger than they are
    for (first, a), (other, b) in combinations(upright, 2):
        apart = a.x1 - 1 <= b.x0 or b.x1 - 1 <= a.x0 or a.y1 - 1 <= b.y0 or b.y1 - 1 <= a.y0
        assert apart, f"{first!r} lies over {other!r}"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_every_figure_fits_at_every_size(shape) -> None:
    for picture in pictures(with_tests(synthetic.atlas(*shape))):
        figure = picture.draw()
        figure.set_dpi(60)
        check_layout(figure)


@pytest.mark.parametrize("palette", PALETTES)
def test_every_palette_draws(palette) -> None:
    for picture in pictures(with_tests(synthetic.atlas(1, 2)), palette=palette):
        figure = picture.draw()
        figure.set_dpi(20)
        FigureCanvasAgg(figure).draw()


def test_other_numbers_of_functions_tasks_and_categories_fit() -> None:
    for n in (1, 3, 11, 20):
        names = [f"A rather long name of a function, {i}" for i in range(n)]
        made = with_tests({"probe": synthetic.probe(24, 16, names), "dissociate": synthetic.dissociate(24, 16, names)})
        check_layout(figures.forest_plot(made))
        for result in made.values():
            check_layout(figures.importance_grid(result))
            check_layout(figures.specialisation(result))
    check_layout(figures.always_any(synthetic.gate(12, 12, ["one"])))
    check_layout(figures.always_any(synthetic.gate(12, 12, ["one", "two", "three"])))
    check_layout(figures.category_map(synthetic.maps(12, 12, ["x", "y"])))
    check_layout(figures.importance_grid(by_kv_group(synthetic.probe(24, 16))))


def test_head_cards_fit_and_say_what_is_known() -> None:
    figure = figures.head_card(synthetic.atlas(12, 8), 3, 5)
    check_layout(figure)
    texts = " ".join(t.get_text() for t in figure.findobj(Text))
    for part in ("L3.H5", "synthetic", "' Paris'", "\\u6771\\u4eac", "facilitation", "log P lost", "rank"):
        assert part in texts
    check_layout(figures.head_card({"maps": synthetic.maps(1, 1)}, 0, 0))
    check_layout(figures.head_card({}, 0, 0))


def test_a_card_gives_no_rank_to_scores_at_chance() -> None:
    result = synthetic.with_chance(synthetic.maps(12, 8)).isel(relation=[0, 1])
    layer, head = (int(i) for i in np.argwhere(result.score[1].values == result.score[1].values.max())[0])
    result["score"][0, layer, head] = 1.0
    figure = figures.head_card(with_tests({"maps": result}), layer, head)
    check_layout(figure)
    texts = [t.get_text() for t in figure.findobj(Text)]
    assert "1, rank 1, chance 0.1" in texts
    level = f"{float(result.chance[1]):.2g}"
    assert f"{float(result.chance[1]):.3g}, at chance ({level})" in texts
    assert any("relation_1, score by maps: not supported" in text.replace("\n", " ") for text in texts)
    assert not any("rank" in text for text in texts if f"({level})" in text)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_figures_of_maps_at_chance_fit(shape) -> None:
    partly = synthetic.with_chance(synthetic.maps(*shape))
    none = partly.assign(chance=("relation", np.ones(8)), chance_suppression=("relation", np.ones(8)))
    probe = synthetic.probe(*shape)
    for made in (
        {"maps": partly},
        {"maps": none},
        {"probe": probe.assign(clears_control=probe.clears_control & False)},
    ):
        for picture in pictures(made):
            figure = picture.draw()
            figure.set_dpi(60)
            check_layout(figure)
            if picture.name.startswith("importance"):
                texts = [t.get_text().replace("\n", " ") for t in figure.findobj(Text)]
                at_chance = sum(text.startswith("not above chance: best") for text in texts)
                assert at_chance == (int(none_above(partly, "score").sum()) if made.get("maps") is partly else 8)
                drawn_labels = [axes for axes in figure.axes if axes.images and axes.get_title()]
                assert all(np.ma.count(axes.images[0].get_array()) for axes in drawn_labels)


def test_names_are_text_not_mathematics() -> None:
    result = synthetic.probe(6, 8, ["$\\frac{1}{", "<script>", "_hidden", "東京"])
    check_layout(figures.importance_grid(result))
    check_layout(figures.specialisation(result))
    profile = figures.layer_profile({"probe": result})
    check_layout(profile)
    assert "_hidden" in [t.get_text() for t in profile.findobj(Text)]
    check_layout(figures.category_map(synthetic.maps(6, 8, ["$x$", "_y"])))


def test_layers_without_heads_are_drawn_grey() -> None:
    made = synthetic.atlas(6, 8)
    for result in made.values():
        for name, variable in result.data_vars.items():
            if {"layer", "head"} <= set(variable.dims) and variable.dtype.kind == "f":
                result[name] = variable.where(result.layer != 2)
    for picture in pictures(made):
        figure = picture.draw()
        figure.set_dpi(60)
        check_layout(figure)


@pytest.mark.usefixtures("print_figures")
def test_files_are_the_same_every_time_and_have_captions(tmp_path) -> None:
    made = synthetic.atlas(6, 8)
    for folder in ("a", "b"):
        write_figures(made, tmp_path / folder, only=["categories", "layers"])
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == [f"{n}.{e}" for n in ("categories", "layers") for e in ("pdf", "png", "svg", "txt")]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    with Image.open(tmp_path / "a" / "layers.png") as image:
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert b"/FontFile2" in (tmp_path / "a" / "layers.pdf").read_bytes()  # embedded
    assert "font-family" not in (tmp_path / "a" / "layers.svg").read_text()  # outlines
    with pytest.raises(BadArgument, match="format has 'jpg', expected some of png, svg, pdf"):
        write_figures(made, tmp_path, formats=["jpg"])


def test_drawing_leaves_the_caller_s_style_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figures.importance_grid(synthetic.probe(6, 8))
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    "name",
    [
        "importance-probe",
        "importance-maps",
        "categories",
        "always-any",
        "tests",
        "specialisation-probe",
        "agreement",
        "importance-dissociate",
        "specialisation-dissociate",
    ],
)
def test_figures_look_as_they_did(name, tmp_path, request) -> None:
    """Compared at an eighth of the size, where letters blur and layout does not."""
    made = with_tests(synthetic.atlas(30, 9))
    if name == "importance-maps":
        made |= with_tests({"maps": synthetic.with_chance(synthetic.maps(30, 9))})
    picture = next(p for p in pictures(made) if p.name == name)
    path = REFERENCES / f"{name}.png"
    figure = picture.draw()
    save(figure, tmp_path / "drawn.png", "png")
    with Image.open(tmp_path / "drawn.png") as image:
        drawn_image = image.convert("RGB").reduce(8)
    if request.config.getoption("--update-references"):
        path.parent.mkdir(exist_ok=True)
        drawn_image.save(path, optimize=True)
    with Image.open(path) as image:
        reference = image.convert("RGB")
    assert drawn_image.size == reference.size
    difference = np.abs(np.asarray(drawn_image, float) - np.asarray(reference, float)).mean(-1)
    assert difference.mean() < 3  # of 255
    assert (difference > 60).mean() < 0.01
