"""Usage errors are reported before anything heavy is imported or loaded; long work reports its progress."""

import json
import subprocess
import sys

import pytest

import headatlas as ha
from headatlas import terminal
from headatlas.errors import BadArgument
from headatlas.exchange import import_formats
from headatlas.figures.all import FIGURES
from headatlas.figures.style import PALETTES
from headatlas.methods import importing_methods
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.ablate import KINDS
from headatlas.methods.method import PRESETS
from headatlas.models.families import find_anatomy
from headatlas.models.head_names import read_shape
from headatlas.models.memory import skeleton
from headatlas.progress import show_step
from headatlas.runs.estimate import estimate
from headatlas.runs.where import ENGINES
from headatlas.tasks.built_in import relation_names
from headatlas.tasks.questions import CONTEXTS
from headatlas.tasks.relations import load_relations
from headatlas_bench import commands as benchmark_commands
from headatlas_bench.contenders import contenders
from tests.models.tiny import TINY, build
from tests.models.tiny_gguf import tiny_llama, write_gguf
from tests.test_cli import headatlas

WRONG = [
    (["head", "MODEL", "L99.H0"], "head L99.H0 is out of range: this model has L0 to L2, H0 to H5"),
    (["head", "MODEL", "five"], "head 'five' is not a head: write it as L12.H5"),
    (["head", "MODEL", "L0.H0", "--atlas", "nowhere"], "--atlas is 'nowhere': no such folder"),
    (["run", "MODEL", "--methods", "mapps"], "Did you mean 'maps'?"),
    (["run", "MODEL", "--methods", "maps", "--functions", "Retrieval"], "functions is given, but the methods are maps"),
    (["run", "MODEL", "--functions", "Retreival"], "Did you mean 'Retrieval'?"),
    (["run", "MODEL", "--methods", "contrast"], "methods: 'contrast' needs keep and lose"),
    (["run", "MODEL", "--preset", "quik", "--plan"], "Did you mean 'quick'?"),
    (["run", "MODEL", "--engine", "rai"], "--engine is 'rai', expected one of local, ray"),
    (["gate", "MODEL", "--tasks", "maths"], "Did you mean 'math'?"),
    (["contrast", "MODEL", "--keep", "math", "--lose", "sintax"], "Did you mean 'syntax'?"),
    (["gate", "MODEL", "--seeds", "100000000"], "seeds is 100000000, expected a whole number from 1 to 1000"),
    (["dissociate", "MODEL", "--tasks", "math,country_to_capitol"], "Did you mean 'country_to_capital'"),
    (["dissociate", "MODEL", "--seeds", "0"], "seeds is 0"),
    (["dissociate", "MODEL", "--seeds", "1,1"], "seeds is [1, 1]"),
    (["dissociate", "MODEL", "--seeds", "one"], "--seeds is 'one', expected a number, or comma-separated numbers"),
    (["ablate", "MODEL", "--kind", "zeros"], "Did you mean 'zero'?"),
    (["ablate", "MODEL", "--data", "nowhere.jsonl"], "--data is 'nowhere.jsonl': no such file"),
    (["ablate", "MODEL", "--limit", "few"], "--limit is 'few', expected a whole number"),
    (["maps", "MODEL", "--k", "autp"], "--k is 'autp', expected a whole number or auto. Did you mean 'auto'?"),
    (["probe", "MODEL", "--kind", "perhead"], "Did you mean 'per-head'?"),
    (["probe", "MODEL", "--questions", "nowhere.json"], "--questions is 'nowhere.json': no such file"),
    (
        ["dissociate", "MODEL", "--questions", "vareid"],
        "nor built-in questions (varied, stories). Did you mean 'varied'?",
    ),
    (["probe", "MODEL", "--questions", "varied", "--functions", "Retreival"], "Did you mean 'Retrieval'?"),
    (["probe", "MODEL", "--test", "nowhere.json"], "--test is 'nowhere.json': no such file"),
    (["probe", "MODEL", "--functions", "Retreival"], "Did you mean 'Retrieval'?"),
    (["taylor", "MODEL", "--preset", "quik"], "Did you mean 'quick'?"),
    (["pattern", "MODEL", "--engine", "rai"], "--engine is 'rai', expected one of local, ray"),
    (["patern"], "Did you mean 'pattern'"),
    (["maps", "nowhere.gguf"], "model is 'nowhere.gguf': no such file or folder"),
    (["gate", "./nowhere"], "model is 'nowhere': no such file or folder"),
    (["maps", "MODEL", "--relations", "nowhere"], "--relations is 'nowhere': no such file or folder"),
    (["figures", "nowhere"], "DIR is 'nowhere': no such folder"),
    (["figures", ".", "--only", "agrement"], "Did you mean 'agreement'?"),
    (["heads", "nowhere"], "ATLAS is 'nowhere': no such folder"),
    (["heads", "nowhere.nc"], "ATLAS is 'nowhere.nc': no such file"),
    (["report", "nowhere"], "DIR is 'nowhere': no such folder"),
    (["compare", ".", "nowhere"], "ATLAS is 'nowhere': no such folder"),
    (["import", "nowhere.csv", "--as", "gate", "--out", "x"], "SCORES is 'nowhere.csv': no such file"),
    (["import", ".", "--format", "retrieval-heads", "--out", "x"], "Did you mean 'retrieval-head'?"),
    (["compare", ".", "nowhere"], "ATLAS is 'nowhere': no such folder"),
    (["compare", "nowhere.nc"], "ATLAS is 'nowhere.nc': no such file"),
    (["compare", ".", "--by", "group"], "--by is 'group', expected one of kv-group"),
    (["benchmark", "--methods", "tailor"], "Did you mean 'taylor'?"),
    (["rnu"], "Did you mean 'run'?"),
    (["run", "--metods", "maps"], "No such option: --metods. Did you mean '--methods'?"),
]


def test_a_wrong_name_ends_with_2_before_anything_heavy_is_imported(tmp_path) -> None:
    """All of them in one process that has imported nothing yet."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"num_hidden_layers": 3, "num_attention_heads": 6}')
    code = (
        "import contextlib, io, json, sys\n"
        "from headatlas.cli import main\n"
        "ended = []\n"
        "for arguments in json.loads(sys.stdin.read()):\n"
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        try:\n"
        "            main(arguments)\n"
        "        except SystemExit as e:\n"
        "            ended.append([e.code, out.getvalue(), err.getvalue()])\n"
        "heavy = [m for m in ('torch', 'transformers', 'xarray', 'matplotlib') if m in sys.modules]\n"
        "print(json.dumps([ended, heavy]))\n"
    )
    calls = [[str(tmp_path / "tiny") if a == "MODEL" else a for a in arguments] for arguments, _ in WRONG]
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(calls), capture_output=True, text=True, cwd=tmp_path
    )
    endings, heavy = json.loads(done.stdout)
    assert heavy == []
    for (arguments, expected), (code, out, text) in zip(WRONG, endings, strict=True):
        assert (code, out) == (2, ""), arguments
        assert text.startswith("error: "), arguments
        assert expected in text, arguments
        assert len(text.splitlines()) == 1, arguments


KINDS_OF_MISTAKES = [
    ["head", "MODEL", "L99.H0"],
    ["run", "MODEL", "--methods", "mapps"],
    ["gate", "MODEL", "--seeds", "100000000"],
    ["ablate", "MODEL", "--data", "nowhere.jsonl"],
    ["maps", "nowhere.gguf"],
    ["heads", "nowhere"],
    ["rnu"],
    ["run", "--metods", "maps"],
]


@pytest.mark.parametrize("arguments", KINDS_OF_MISTAKES, ids=" ".join)
def test_it_ends_so_too_when_all_is_imported(capsys, folder, tmp_path, monkeypatch, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = headatlas(capsys, *(folder if a == "MODEL" else a for a in arguments))
    assert (code, out) == (2, "")
    assert next(message for wrong, message in WRONG if wrong == arguments) in err


CALLS = {
    "gate": lambda model: ha.gate(model, "maths"),
    "contrast": lambda model: ha.contrast(model, keep="math", lose="maths"),
    "gate, seeds": lambda model: ha.gate(model, seeds=100_000_000),
    "ablate": lambda model: ha.ablate(model, ["math", "maths"]),
    "taylor": lambda model: ha.taylor(model, "maths"),
    "ig": lambda model: ha.ig(model, "maths"),
    "dissociate": lambda model: ha.dissociate(model, ["math", "maths"]),
    "probe": lambda model: ha.probe(model, functions=["maths"]),
    "maps": lambda model: ha.maps(model, ["maths"]),
    "run": lambda model: ha.run(model, "nowhere", methods="maths"),
    "run, functions": lambda model: ha.run(model, "nowhere", functions=["maths"]),
    "plan": lambda model: estimate(model, methods=["maths"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_python_too_is_told_before_a_model_is_loaded(call, folder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headatlas.runs.worker.load", lambda *a, **k: pytest.fail("loaded"))
    monkeypatch.setattr("headatlas.runs.estimate.load_skeleton", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(BadArgument, match="maths|seeds is 100000000"):
        CALLS[call](folder)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_layers_and_heads_are_read_from_the_configuration(tiny, tmp_path) -> None:
    """Of every family; where the names differ, nothing is printed rather than something wrong."""
    config = build(tiny).config
    config.save_pretrained(tmp_path)
    anatomy = find_anatomy(skeleton(config))
    assert read_shape(str(tmp_path)) in ((anatomy.n_layers, anatomy.n_heads), None)
    if tiny.family in ("llama", "qwen3", "gemma3_text", "gpt2", "gpt_neox", "falcon", "mpt", "bloom"):
        assert read_shape(str(tmp_path)) is not None


def test_layers_and_heads_of_a_gguf_file_that_was_converted(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    assert read_shape(str(tmp_path / "tiny.gguf")) is None
    ha.load(tmp_path / "tiny.gguf", "cpu")
    assert read_shape(str(tmp_path / "tiny.gguf")) == (2, 4)


@pytest.mark.parametrize("text", ["", "[]", '{"num_hidden_layers": "three"}', '{"text_config": 5}'])
def test_a_configuration_that_says_nothing(tmp_path, text) -> None:
    (tmp_path / "config.json").write_text(text)
    assert read_shape(str(tmp_path)) is None


def test_names_of_the_command_are_those_of_the_library() -> None:
    """The command has them by itself, so as not to import what they belong to."""
    assert set(benchmark_commands.contenders()) == set(contenders())
    assert relation_names() == sorted(r.name for r in load_relations())


@pytest.mark.parametrize(
    ("command", "option", "choices"),
    [
        ("run", "--dtype", ["auto", "float32", "bfloat16", "float16", "float64"]),
        ("run", "--engine", ENGINES),
        ("run", "--preset", PRESETS),
        ("gate", "--engine", ENGINES),
        ("gate", "--preset", PRESETS),
        ("dissociate", "--context", CONTEXTS),
        ("probe", "--kind", ("published", "per-head", "written", "used")),
        ("ablate", "--kind", KINDS),
        ("maps", "--input", ("stream", "published", "embedding")),
        ("import", "--as", importing_methods()),
        ("import", "--format", import_formats()),
        ("figures", "--only", FIGURES),
        ("figures", "--palette", PALETTES),
    ],
)
def test_choices_of_an_option_are_those_of_the_library(capsys, tmp_path, command, option, choices) -> None:
    arguments = {"import": [__file__], "figures": [tmp_path]}.get(command, [])
    _, _, err = headatlas(capsys, command, *arguments, option, "none-of-them")
    assert set(err.partition("one of ")[2].partition(".")[0].split(", ")) == set(choices)


def test_a_step_that_takes_long_is_told(capsys, monkeypatch) -> None:
    class AtOnce:
        """A timer whose time has come when it starts."""

        def __init__(self, seconds, function, args) -> None:
            self.do = lambda: function(*args)

        def start(self) -> None:
            self.do()

        def cancel(self) -> None:
            pass

    monkeypatch.setattr(terminal, "Timer", AtOnce)
    with show_step(terminal.bar, "loading a model"):
        assert capsys.readouterr().err == "loading a model …\n"
    assert capsys.readouterr().err == ""


def test_what_is_done_before_the_work_is_told(folder, tmp_path) -> None:
    """Loading, planning, fingerprints and timing each have a label."""
    labels: list[str] = []

    def record_label(items, label):
        labels.append(label)
        return items

    ha.run(folder, tmp_path / "atlas", methods=["taylor"], progress=record_label)
    assert labels[:4] == [
        f"opening {folder}",
        "planning taylor",
        f"loading {folder}",
        "reading the weights of tiny for their fingerprint",
    ]
    labels.clear()
    estimate(folder, methods=["taylor", "dissociate"], device="cpu", progress=record_label)
    assert labels == [
        f"opening {folder}",
        "planning taylor",
        "planning dissociate",
        f"loading {folder}",
        "reading the weights of tiny for their fingerprint",
        "timing a part of each kind",
    ]


def test_seeds_are_few_enough_to_be_fitted() -> None:
    assert seed_numbers(3) == [0, 1, 2]
    assert seed_numbers([5, 7]) == [5, 7]
    for seeds in (1001, 10**12, range(1001), 0, -1, [], [1, 1], [-1], [0.5], "12", None, 2.0):
        with pytest.raises(BadArgument, match="seeds is "):
            seed_numbers(seeds)
