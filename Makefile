# make demo, make test, make test-all, make lint, make docs, make dist, make clean; PYTHON=python3.12 chooses the interpreter

PYTHON ?= python3
VENV := .venv
RUN := runs/moon
TEXT := examples/moon.txt
STEPS := 30
UNMASK := $(VENV)/bin/unmask
SHIPPED := $(wildcard src/unmask/shipped/stories/model.safetensors)
STORY := Lily had a red ball. She ran on the desk with her purple cow. The ball was happy and Lily ate it.
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test test-all lint docs dist clean

demo: $(VENV)/.runs
ifneq ($(SHIPPED),)
	@printf '\n== 1 of 4. Write a story: all words are masked, and each step fills some of them ==\n\n'
	$(UNMASK) generate stories --seed 0 --time
	@printf '\n== 2 of 4. Fill gaps: the model reads the words before and after them ==\n\n'
	$(UNMASK) fill stories "Tom was [MASK:3] because his [MASK] was lost." --n 4
	@printf '\n== 3 of 4. Edit: the six least likely words of a text are written anew ==\n\n'
	echo "$(STORY)" | $(UNMASK) edit stories - --remask-uncertain 6 --n 2
	@printf '\n== 4 of 4. Train the model further on $(TEXT), then let it write: one to four minutes ==\n\n'
	$(UNMASK) train finetune --data.train $(TEXT) --run $(RUN) --data.length 64 --training.steps $(STEPS)
	$(UNMASK) generate $(RUN) --prompt "Zip" --length 90 --n 2 --seed 1
	$(UNMASK) fill $(RUN) "Zip the [MASK] went to the [MASK] with a [MASK:2]." --n 3
else
	@printf '\n== No model ships with this checkout. A small one is trained on $(TEXT) ==\n\n'
	$(UNMASK) train auto --data.train $(TEXT) --run $(RUN)
	$(UNMASK) generate $(RUN) --prompt "Zip" --temperature 0.7
endif
	@printf '\n== Next ==\n\n'
	@printf '  source $(VENV)/bin/activate\n'
	@printf '  unmask play                                                 the playground in the browser\n'
	@printf '  unmask generate stories --watch                             a story, step by step\n'
	@printf '  unmask train finetune --data.train FILE --run runs/mine     a model of your own text\n\n'

# modules are compiled once, when they are first imported, whatever the machine says
export PYTHONDONTWRITEBYTECODE =
PYTEST := PYTHONUTF8=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist worksteal

test: lint
	$(PYTEST)

# the long forms too: shipped models on every page, benchmarks in small, shapes checked in all tests, and
# the share of lines that the tests reach (floor in pyproject.toml), and the ratios of speed that must not be lost
test-all: lint
	$(PYTEST) -m '' --cov --cov-report=
	@printf 'lines that the tests reach, in percent: '
	@$(VENV)/bin/python -m coverage report --format=total
	$(VENV)/bin/python benchmarks/speed smoke

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/python tests/helpers/count_code.py

# site/index.html; a broken link is an error (which --quiet would hide)
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

dist: $(VENV)/.ready
	$(VENV)/bin/python -m hatchling build
	cd models && ../$(VENV)/bin/python -m hatchling build -t wheel -d ../dist

clean:
	rm -rf .coverage $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# what the commands need, and beyond it what the tests need
$(VENV)/.runs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[log,serve]'
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
