"""How the code is laid out: one place knows a method, one an architecture; functions and files are short."""

import ast
import re
from collections import Counter
from pathlib import Path

from headatlas.methods import method_names
from headatlas.models.families import FAMILIES
from headatlas.results.variables import COMMON

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headatlas"
BENCH = ROOT / "bench" / "src" / "headatlas_bench"
FILES = sorted([*SOURCE.rglob("*.py"), *BENCH.rglob("*.py")])
ALLOWED_METHODS = {  # who may know a method that is not its own
    "methods/contrast": {"gate"},  # its other form
    "cli/head.py": {"salient"},  # the card of one head shows its operations
}
ROOMS = ("figures", "report", "results", "live", "cli", "edits", "comparison")  # which show what any method says
ORDINARY = {  # names of variables that are words of other things there too
    *("answer", "depth", "distance", "each", "held_out", "k", "length", "loss", "need", "pairs", "raised", "response"),
    *("selectivity", "set", "share", "signed", "summary", "texts", "token", "used", "vector"),
    "detectable",  # a variable of tests.nc
    "specialisation",  # a figure's name
}
LEAKS = {  # which are left: this list only becomes shorter
    "cli/head.py": {"strongest"},  # the card of one head shows its operations
    "report/tests.py": {  # the page's section about the probe's accuracy, which no other method has
        *("accuracy_per_function", "bag_of_words", "bag_of_words_accuracy", "control_accuracy", "majority_accuracy"),
    },
}


def name(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else BENCH.parent).as_posix()


def test_nothing_outside_its_own_folder_imports_a_method() -> None:
    for path in FILES:
        used = set(re.findall(r"headatlas\.methods\.([a-z]\w*)", path.read_text())) & set(method_names())
        own_methods = {m for m in used if name(path).startswith((f"methods/{m}/", f"methods/{m}.py"))}
        allowed = {
            m
            for place, allowed_methods in ALLOWED_METHODS.items()
            if name(path).startswith(place)
            for m in allowed_methods
        }
        assert not used - own_methods - allowed, name(path)


def variables_of_one_method() -> set[str]:
    """Variables that one file alone has, as the reference says."""
    page = (ROOT / "docs" / "reference" / "files.md").read_text()
    files = re.findall(r"^### (\w+)\.nc$(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    rows = {file: re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE) for file, text in files}
    names = {file: set(re.findall(r"`(\w+)`", " ".join(cells))) for file, cells in rows.items()}
    counted = Counter(variable for variables in names.values() for variable in variables)
    return {variable for variable, n in counted.items() if n == 1} - set(COMMON) - ORDINARY


def test_nothing_outside_methods_names_a_variable_that_one_method_has() -> None:
    """Special displays are declared (`shows` and the measures), not looked up by variable name."""
    variables = variables_of_one_method()
    assert {"facilitation", "member", "masked_heads", "suppressed", "amplification"} <= variables
    leaks = {}
    for path in (p for p in FILES if name(p).startswith(ROOMS)):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        if named := (texts | attributes) & variables:
            leaks[name(path)] = named
    assert leaks == LEAKS


def test_nothing_outside_families_knows_an_architecture() -> None:
    """gguf.py knows names of tokenizers, which GGUF files call after the model that had them first."""
    families = "|".join(map(re.escape, FAMILIES))
    for path in FILES:
        if name(path) not in ("models/families.py", "models/gguf.py"):
            assert not re.findall(rf"[\"']({families})[\"']", path.read_text()), name(path)


def test_functions_and_files_are_short() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 600, name(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                docstring = (ast.get_docstring(node, clean=False) or "").count("\n")
                assert node.end_lineno - node.lineno - docstring < 60, f"{name(path)}: {node.name}"


def test_declarations_are_light() -> None:
    """`headatlas --help` imports every method's file; torch and xarray take seconds."""
    heavy = re.compile(r"^(?:import|from) (torch|numpy|xarray|pandas|transformers|headatlas\.models)", re.MULTILINE)
    for method in method_names():
        path = SOURCE / "methods" / f"{method}.py"
        path = path if path.is_file() else SOURCE / "methods" / method / "__init__.py"
        assert not heavy.findall(path.read_text()), method


def test_files_outside_methods_have_names_of_their_own() -> None:
    """But those that compare maps in several folders, and commands that are named after their work."""
    shared = {"__init__", "arguments", "atlas", "charts", "compare", "edit", "tables", "used", "view"}
    names = [path.stem for path in SOURCE.rglob("*.py") if not name(path).startswith("methods/")]
    assert {stem for stem in names if names.count(stem) > 1} <= shared
