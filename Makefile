# Everything runs from a bare Python 3.11 or later: `make demo` and `make test` build .venv from the locked,
# hashed requirements first. PYTHON names the interpreter to build it with.

PYTHON ?= python3
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE := src tests tools

.DELETE_ON_ERROR:
.PHONY: demo test lint types accuracy bench fuzz lock clean

demo: $(VENV)/.run
	$(BIN)/python tools/demo.py

test: lint types
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(VENV)/.dev
	$(BIN)/mypy

# DATA is a folder of reported start-ups; see docs/accuracy.md.
accuracy: $(VENV)/.run
	@test -n "$(DATA)" || { echo "usage: make accuracy DATA=DIR" >&2; exit 2; }
	$(BIN)/python tools/accuracy.py "$(DATA)"

bench: $(VENV)/.run
	$(BIN)/python tools/bench.py

fuzz: $(VENV)/.dev
	$(BIN)/python tools/fuzz.py

# Needs uv. The files must not name an index or any other host.
lock:
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--upgrade --extra hub --group dev pyproject.toml -o requirements/dev.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--upgrade --constraint requirements/dev.txt --group build pyproject.toml -o requirements/run.txt
	@! grep -nE '://|^ *--[a-z-]*(index|links)' requirements/*.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run $(VENV)/.dev: $(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes --requirement $<
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
