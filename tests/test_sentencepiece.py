"""A run on a model whose tokenizer is like Llama 2's: byte tokens such as <0x00>, and a decoder that drops spaces."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import headatlas as ha
from headatlas.methods import methods
from headatlas.tasks.needles import load_sentences
from headatlas.tasks.prompts import load_tasks
from headatlas.tasks.relations import load_relations
from tests.models.tiny import TINY, build
from tests.models.trained import sentencepiece_like
from tests.test_cli import headatlas

NUL = 3  # the token <0x00>
NEEDS_TASKS = {"contrast"}  # methods without default tasks


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A random model. Every head writes NUL strongly, upwards or downwards, so that salient has to store it."""
    tasks = load_tasks(None, ["math", "syntax", "commonsense"])
    examples = [f"{e.prompt}{e.target}" for task in tasks for e in (*task.train, *task.held_out)]
    words = [f" {source} {target}" for relation in load_relations() for source, target in relation.pairs]
    tokenizer = sentencepiece_like([*load_sentences(), *examples, *words], 4000)
    shape = {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "max_position_embeddings": 1024}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = build(replace(TINY[0], options=TINY[0].options | shape | tokens)).float()
    model.lm_head.weight[NUL] *= 30
    path = tmp_path_factory.mktemp("models") / "sentencepiece"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def default_run(folder, tmp_path_factory) -> Path:
    """The default methods."""
    out = tmp_path_factory.mktemp("atlas") / "default"
    ha.run(folder, out, device="cpu")
    return out


def test_every_method_ends_well_and_is_on_the_page(default_run) -> None:
    made = ha.open(default_run)
    assert {name: entry.get("why") for name, entry in made.info["methods"].items() if not entry["complete"]} == {}
    assert not [name for name, entry in made.info["methods"].items() if "not_drawn" in entry]
    assert set(made) >= {"maps", "salient", "pattern", "taylor", "gate", "probe", "dissociate"}
    figure_names = {path.stem.partition("-")[0] for path in (default_run / "figures").glob("*.png")}
    assert {"importance", "categories"} <= figure_names
    assert (default_run / "report.html").stat().st_size > 1e6


def test_its_tokens_are_read_back_and_reach_the_page(default_run) -> None:
    salient = ha.open(default_run)["salient"]
    written = {*salient.strongest.values.ravel().tolist(), *salient.suppressed.values.ravel().tolist()}
    assert "\0" in written
    assert any(token.startswith(" ") and token.strip().isalpha() for token in written)
    assert "\\u0000" in (default_run / "report.html").read_text(encoding="utf-8")


def test_commands_read_and_export_the_atlas(default_run, tmp_path, capsys) -> None:
    assert headatlas(capsys, "report", default_run)[0] == 0
    for to in ("csv", "json"):
        assert headatlas(capsys, "export", default_run, "--to", to, "--out", tmp_path / f"maps.{to}")[0] == 0
    rows = json.loads((tmp_path / "maps.json").read_text(encoding="utf-8"))
    with (tmp_path / "maps.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert {row["method"] for row in rows} == set(ha.open(default_run)) - {"salient"}


@pytest.mark.slow
def test_all_other_methods_end_well(folder, tmp_path, default_run) -> None:
    others = [name for name in methods() if name not in {*ha.open(default_run), *NEEDS_TASKS}]
    made = ha.run(folder, tmp_path / "others", methods=others, device="cpu")
    assert made.complete == others
