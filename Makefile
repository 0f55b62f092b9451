# make demo, make test, make test-all, make lint, make docs, make dist, make clean; PYTHON=python3.12 chooses the interpreter

PYTHON ?= python3
VENV := .venv
RUN := runs/demo
UNMASK := $(VENV)/bin/unmask
SHIPPED := $(wildcard src/unmask/shipped/stories/model.safetensors)
STORY := Lily had a red ball. She ran on the desk with her purple cow. The ball was happy and Lily ate it.
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test test-all lint docs dist clean

demo: $(VENV)/.runs
ifneq ($(SHIPPED),)
	$(UNMASK) generate stories --seed 0 --time
	$(UNMASK) fill stories "Tom was [MASK:3] because his [MASK] was lost." --n 4
	echo "$(STORY)" | $(UNMASK) edit stories - --remask-uncertain 6 --n 2
else
	@echo "no model ships with this checkout: going on to the small one"
endif
	$(UNMASK) train demo --run $(RUN)
	$(UNMASK) evaluate $(RUN)
	$(UNMASK) generate $(RUN) --prompt "The import statement" --length 64 --temperature 0.7
	$(UNMASK) fill $(RUN) "If the object is a [MASK], then the [MASK:4] is called." --n 4 --temperature 0.7

# modules are compiled once, when they are first imported, whatever the machine says
export PYTHONDONTWRITEBYTECODE =
PYTEST := PYTHONUTF8=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist worksteal

test: lint
	$(PYTEST)

# the long forms too: shipped models on every page, benchmarks in small, shapes checked in all tests, and
# the ratios of speed that must not be lost
test-all: lint
	$(PYTEST) -m ''
	$(VENV)/bin/python benchmarks/smoke.py

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

# site/index.html; a broken link is an error (which --quiet would hide)
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

dist: $(VENV)/.ready
	$(VENV)/bin/python -m hatchling build

clean:
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# what the commands need, and beyond it what the tests need
$(VENV)/.runs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[log]'
	@touch $@

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.runs $(VENV)/.docs $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "unmask needs Python 3.11 or newer, and $(PYTHON) is not: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "building $(VENV): a minute or more"
	$(PYTHON) -m venv $(VENV)
