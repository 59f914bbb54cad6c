# make atlas   set up, then map the default model into atlas/
# make test    set up, then lint, types, layering and all tests
PYTHON ?= python3
BIN := .venv/bin
# The constraints hold for build environments too, so nothing unpinned is ever installed.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install --quiet

.PHONY: atlas test setup setup-dev docs clean

atlas: .venv/.ready
	$(BIN)/headatlas run --out atlas

test: .venv/.ready-dev
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadgroup

docs: .venv/.ready-dev
	$(BIN)/python -m pytest -q -n 2 tests/models/test_families.py --update-docs

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

.venv/.ready-dev: .venv/.ready
	$(PIP) $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['dev'])")
	@touch $@

clean:
	rm -rf .venv atlas
