# make atlas   set up, then map the default model into atlas/
# make test    set up, then lint, types, layering and all tests but the slow ones
# make test-slow   the tests that take long: memory, workers and machines that die, targets of more methods
# make test-cpus   the tests of numbers as other CPUs would round: without vector units, and with AVX2 in two threads
# make docs    set up, then the documentation: site/index.html, which opens from disk
# make docs-figures    the figures and numbers of the default model in README.md and docs/, from atlas/
# make docs-benchmark  the tables of methods against planted heads
# make docs-dissociate, docs-examples    what the pages of methods show of the default model
# make docs-stability  how far every method's maps agree with themselves, on the default model; wants a GPU
# make docs-view     the pictures of the live page
# make docs-notebooks  the notebooks of docs/notebooks, executed, in at most two minutes each
PYTHON ?= python3
BIN := .venv/bin
# The constraints hold for build environments too, so nothing unpinned is ever installed.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install --quiet

.PHONY: atlas test test-slow test-cpus setup setup-dev browser docs docs-figures docs-dissociate docs-benchmark docs-examples docs-notebooks docs-stability docs-view clean

atlas: .venv/.ready
	$(BIN)/headatlas run --out atlas

test: .venv/.ready-dev browser
	$(BIN)/ruff check src bench data tests benchmarks scripts
	$(BIN)/ruff format --check src bench data tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-slow: .venv/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

NUMBERS := $(BIN)/python -m pytest -n 2 --dist loadgroup --ignore tests/report --ignore tests/figures --ignore tests/engines
test-cpus: .venv/.ready-dev
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(NUMBERS)
	ATEN_CPU_CAPABILITY=avx2 TEST_THREADS=2 $(NUMBERS)

# The page is tested in a real browser: Debian's, fetched where that is possible.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null && apt-get install -y -qq chromium >/dev/null 2>&1; } \
	  || echo "no chromium here, and it could not be installed: tests of the page in a browser will be SKIPPED"

docs-figures: .venv/.ready-dev browser
	$(BIN)/headatlas run --out atlas
	$(BIN)/python scripts/docs_figures.py atlas

docs-dissociate: .venv/.ready-dev
	$(BIN)/headatlas run --out atlas
	$(BIN)/python scripts/docs_dissociate.py atlas

docs-benchmark: .venv/.ready-dev
	$(BIN)/headatlas run --out atlas
	$(BIN)/headatlas ablate --limit 16 --out atlas
	$(BIN)/headatlas benchmark --atlas atlas --out benchmark
	for seed in 1 2; do $(BIN)/headatlas benchmark --models spare-one,spare-two,joint-one,joint-two --seed $$seed --out benchmark-$$seed; done
	$(BIN)/python bench/scripts/docs_benchmark.py benchmark benchmark-1 benchmark-2

docs-examples: .venv/.ready-dev
	$(BIN)/python scripts/docs_examples.py build/examples

docs-stability: .venv/.ready-dev
	$(BIN)/python -m headatlas_bench.stability smollm2 --out build/stability
	$(BIN)/python bench/scripts/docs_stability.py build/stability

docs-view: .venv/.ready-dev browser
	$(BIN)/python scripts/docs_view.py

docs-notebooks: .venv/.ready-dev
	$(BIN)/python scripts/docs_notebooks.py --check

# Strict: a dead link, a public name without a place in the reference or a script from elsewhere fails.
docs: .venv/.ready-dev
	$(BIN)/python scripts/docs_reference.py
	$(BIN)/python -m pytest -q -n 2 tests/models/test_families.py --update-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

setup: .venv/.ready
setup-dev: .venv/.ready-dev

# Debian's python3 may come without ensurepip: then the pip that is there installs one into the environment.
.venv/bin/python:
	$(PYTHON) -m venv .venv >/dev/null 2>&1 || { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python .venv/bin/python install --quiet pip; }

# torch first and by its exact version: a plain "torch" may bring gigabytes of CUDA packages to a machine without a GPU.
.venv/.ready: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable .
	@touch $@

.venv/.ready-dev: .venv/.ready bench/pyproject.toml
	$(PIP) --editable . --editable bench $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['dev'])")
	@touch $@

clean:
	rm -rf .venv atlas benchmark build site
