"""Commands made from the records of methods: their options, help and defaults, and what is done with plug-ins."""

import inspect
import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import xarray as xr
from typer.main import get_command

from headatlas import cli, methods
from headatlas.cli import method_commands
from headatlas.errors import BadArgument
from headatlas.methods.method import PRESETS, Measure, method
from tests.registry import find_methods_again
from tests.test_cli import headatlas

COMMON = {
    "--out",
    "--device",
    "--dtype",
    "--engine",
    "--address",
    "--gpus-per-job",
    "--workers",
    "--preset",
    "--tests",
    "--json",
}
NOT_ON_THE_COMMAND_LINE = {"maps"}
GROUP = get_command(cli.app)


@pytest.fixture
def called(monkeypatch) -> dict[str, Any]:
    """What a command hands on; nothing is computed."""
    handed: dict[str, Any] = {}

    def run_method(record, model, options, **rest) -> None:
        handed.update(method=record.name, model=model, options=dict(options), **rest)

    monkeypatch.setattr(method_commands, "run_method", run_method)
    return handed


def help_of(name: str) -> str:
    """Return the help of a command as one line."""
    command = GROUP.get_command(None, name)
    with command.make_context("headatlas " + name, ["x"], resilient_parsing=True, terminal_width=10_000) as context:
        return " ".join(command.get_help(context).split())


@pytest.mark.parametrize("name", methods.methods())
def test_a_command_has_the_options_of_its_function_and_the_common_ones(name) -> None:
    record = methods.get_method(name)
    command = GROUP.get_command(None, name.replace("_", "-"))
    options = {opt for p in command.params if p.param_type_name == "option" for opt in p.opts}
    option_flags = {
        f"--{option.replace('_', '-')}" for option in record.options if option not in NOT_ON_THE_COMMAND_LINE
    }
    assert options == option_flags | COMMON | ({"--data"} if "tasks" in record.options else set())
    assert [p.name for p in command.params if p.param_type_name == "argument"] == ["model"]


@pytest.mark.parametrize("name", methods.methods())
def test_help_tells_every_option_and_its_default(name) -> None:
    record, text = methods.get_method(name), help_of(name.replace("_", "-"))
    assert " ".join((inspect.getdoc(record.function) or "").partition("\n")[0].split()) in text
    for option in record.options.values():
        if option.name in NOT_ON_THE_COMMAND_LINE:
            continue
        assert option.help, f"{option.name} has no help"
        words = " ".join(option.help.split())
        assert words[:1].upper() + words[1:] in text, option.name
        defaults = {p: record.presets.get(p, {}).get(option.name, option.default) for p in PRESETS}
        same = len({str(d) for d in defaults.values()}) == 1
        for preset, default in defaults.items():
            if isinstance(default, int | float | str) and not isinstance(default, bool):
                default = " ".join(str(default).split())
                shown = f"[default: {default}]" if same else f"{default} in {preset}"
                assert shown in text, option.name


@pytest.mark.parametrize("name", methods.methods())
def test_without_options_the_method_and_its_preset_decide(capsys, called, name) -> None:
    required = {"contrast": ["--keep", "math", "--lose", "syntax"]}.get(name, [])
    code, _, _ = headatlas(capsys, name.replace("_", "-"), *required)
    assert code == 0
    options = {"keep": "math", "lose": "syntax"} if required else {}
    common = {"preset": "quick", "out": None, "tests": None, "device": "auto", "dtype": "auto", "engine": "local"}
    rest = {"address": None, "gpus_per_job": None, "workers": None, "as_json": False}
    assert called == {"method": name, "model": None, "options": options} | common | rest


def test_values_come_as_the_method_takes_them(capsys, called, tmp_path) -> None:
    mine, other_file = tmp_path / "mine.jsonl", tmp_path / "more.csv"
    for path in (mine, other_file):
        path.write_text("")
    for arguments, options in (
        (["gate", "--tasks", "math, syntax"], {"tasks": ["math", "syntax"]}),
        (["gate", "--data", mine, "--tasks", "math", "--data", other_file], {"tasks": ["math", mine, other_file]}),
        (["gate", "--tasks", ""], {}),
        (["gate", "--seeds", "3", "--strength", "2", "--halves"], {"seeds": 3, "strength": 2.0, "halves": True}),
        (["gate", "--seeds", "0,3,5", "--batch-tokens", "64"], {"seeds": [0, 3, 5], "batch_tokens": 64}),
        (["dissociate", "--tasks", "country_to_capital,math"], {"tasks": ["country_to_capital", "math"]}),
        (["dissociate", "--functions", "Retrieval, Inference"], {"functions": ["Retrieval", "Inference"]}),
        (["probe", "--functions", "all", "--keep", "correct"], {"functions": "all", "keep": "correct"}),
        (["probe", "--questions", mine, "--functions", "Rhyme"], {"questions": mine, "functions": ["Rhyme"]}),
        (["probe", "--questions", "varied"], {"questions": "varied"}),
        (["maps", "--k", "auto", "--relations", tmp_path], {"k": "auto", "relations": tmp_path}),
        (["maps", "--k", "7", "--relations", "country_to_capital"], {"k": 7, "relations": ["country_to_capital"]}),
        (["contrast", "--keep", mine, "--lose", "math"], {"keep": str(mine), "lose": "math"}),
    ):
        code, _, err = headatlas(capsys, *arguments)
        assert (code, err) == (0, ""), arguments
        assert called["options"] == options, arguments
    headatlas(capsys, "ig", "m", "--preset", "full", "--engine", "ray", "--address", "auto", "--workers", 2, "--json")
    assert called | {"model": "m", "preset": "full", "engine": "ray", "address": "auto", "workers": 2} == called
    assert called["as_json"] is True


def test_the_model_of_an_atlas_is_the_default_in_its_folder(tmp_path, monkeypatch) -> None:
    models = []

    def compute(record, model, *a, **k) -> xr.Dataset:
        models.append(model)
        raise BadArgument("stop")

    monkeypatch.setattr("headatlas.runs.run.compute", compute)
    for text in (None, "{", "[]", '{"model": {"name": "gpt2"}}'):
        if text is not None:
            (tmp_path / "atlas.json").write_text(text)
        with pytest.raises(BadArgument, match="stop"):
            method_commands.run_method(methods.get_method("pattern"), None, {}, out=tmp_path)
    assert models == ["smollm2", "smollm2", "smollm2", "gpt2"]


def test_methods_are_listed(capsys) -> None:
    code, out, err = headatlas(capsys, "methods", "--json")
    assert (code, err) == (0, "")
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == list(methods.methods())
    assert rows["pattern"] == {
        "name": "pattern",
        "title": "Attention patterns",
        "measures": ["score over pattern"],
        "presets": ["quick", "full"],
        "source": "headatlas",
    }
    code, out, _ = headatlas(capsys, "methods")
    assert code == 0
    assert all(
        re.search(rf"^{name} .*{re.escape(row['title'])}", out, flags=re.MULTILINE) for name, row in rows.items()
    )


@method(title="Of another package", measures=[Measure("score", over="thing")], presets={"quick": {"width": 3}})
def far(
    lm: Any,
    *,
    width: Annotated[int, "how wide"],
    names: Annotated[list[str] | None, "of things"] = None,
    numbers: Annotated[list[int], "some"] = (1, 2),  # type: ignore[assignment]
    widths: Annotated[int | tuple[int, int], "one for both sides, or one each"] = 1,
    rates: Annotated[tuple[float, float], "at the start and the end"] = (0.1, 0.01),
    form: Annotated[Literal["round", "square"], "its form"] = "round",
    size: int | float | Literal["any"] = "any",
    place: Path | None = None,
    json: str = "x",
) -> xr.Dataset:
    """Far away."""
    raise NotImplementedError


@method(title="By name only", presets={"quick": {"width": 3}, "full": {}}, in_run=False)
def aside(lm: Any, *, width: Annotated[int, "how wide"] = 9) -> xr.Dataset:
    """Set aside."""
    raise NotImplementedError


@pytest.fixture
def plug_ins(monkeypatch):
    """Two methods of other packages, one of them broken."""
    entries = [
        EntryPoint("far", "tests.cli.test_methods:far", methods.GROUP),
        EntryPoint("aside", "tests.cli.test_methods:aside", methods.GROUP),
        EntryPoint("broken", "tests.no_such_module:broken", methods.GROUP),
    ]
    monkeypatch.setattr(methods, "entry_points", lambda group: entries)
    find_methods_again()
    yield
    find_methods_again()


def test_a_plug_in_has_a_command_and_a_broken_one_a_line(capsys, called, plug_ins) -> None:
    code, out, err = headatlas(capsys, "methods", "--json")
    assert code == 0
    why = "ModuleNotFoundError: No module named 'tests.no_such_module'"
    assert err == f"method broken of tests.no_such_module:broken is left out: {why}\n"
    assert {"far", "pattern"} <= {row["name"] for row in json.loads(out)}
    assert "broken" not in out
    code, out, _ = headatlas(capsys, "--help")
    assert code == 0
    assert re.search(r"^  far +Far away\.$", out, flags=re.MULTILINE)
    assert "broken" not in out
    code, _, err = headatlas(capsys, "broken")
    assert code == 2
    assert err.splitlines()[-1].startswith("error: No such command 'broken'.")
    assert headatlas(capsys, "far", "--names", "a,b", "--numbers", "1,2", "--place", "x", "--size", "2.5")[0] == 0
    expected = {"names": ["a", "b"], "numbers": [1, 2], "place": Path("x"), "size": 2.5}
    assert called["options"] == expected
    for wrong, says in (
        (["--numbers", "1,b"], "--numbers is 'b', expected a whole number"),
        (["--widths", "two"], "--widths is 'two', expected a whole number"),
        (["--rates", "0.1,b"], "--rates is 'b', expected a number"),
        (["--form", "rond"], "--form is 'rond', expected one of round, square. Did you mean 'round'?"),
        (["--size", "an"], "expected a whole number or a number or any. Did you mean 'any'?"),
    ):
        code, _, err = headatlas(capsys, "far", *wrong)
        assert code == 2
        assert says in err


@pytest.mark.parametrize(
    ("value", "option"),
    [
        (["--widths", "2"], {"widths": 2}),
        (["--widths", "2,3"], {"widths": [2, 3]}),
        (["--rates", "0.5,1"], {"rates": [0.5, 1.0]}),
    ],
)
def test_several_numbers_are_comma_separated(capsys, called, plug_ins, value, option) -> None:
    help_text = help_of("far")
    assert "--widths N or N,N" in help_text
    assert "--rates X,X" in help_text
    assert headatlas(capsys, "far", *value)[0] == 0
    assert called["options"] == option


def test_a_method_by_name_only_has_presets_but_is_in_none_of_run(capsys, called, plug_ins) -> None:
    assert {"far"} <= set(methods.preset_methods("quick"))
    assert "aside" not in {*methods.preset_methods("quick"), *methods.preset_methods("full")}
    assert "[default: 3 in quick, 9 in full]" in help_of("aside")
    _, out, _ = headatlas(capsys, "methods", "--json")
    assert {row["name"]: row["presets"] for row in json.loads(out)}["aside"] == []


def test_what_a_preset_gives_need_not_be_given(capsys, called, plug_ins) -> None:
    """width has no default: in the quick preset it is 3, in the full one it must be given."""
    assert "[default: 3 in quick]" in help_of("far")
    assert headatlas(capsys, "far")[0] == 0
    code, _, err = headatlas(capsys, "far", "--preset", "full")
    assert (code, err) == (2, "error: Missing option '--width'.\n")
    assert headatlas(capsys, "far", "--preset", "full", "--width", 1)[0] == 0
    assert called["options"] == {"width": 1}
