# What you can ask for. Everything needs only git, make and Python >= 3.11; the first call makes .venv. An environment that is
# active (conda's other than its base, or a venv) is used instead, if labkit is in it: README says how to make one.
PYTHON ?= python3
# On Linux, PyPI's torch brings CUDA and weighs gigabytes. Without a GPU, save them:
#   make test TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

ACTIVE := $(or $(VIRTUAL_ENV),$(if $(filter-out base,$(CONDA_DEFAULT_ENV)),$(CONDA_PREFIX)))
ACTIVE := $(filter-out $(CURDIR)/.venv,$(ACTIVE))
ifneq ($(and $(ACTIVE),$(shell $(ACTIVE)/bin/python -I -c 'import labkit, jupyterlab' 2>/dev/null && echo yes)),)
PY := $(ACTIVE)/bin/python
READY :=
else
PY := .venv/bin/python
READY := .venv/.ready
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help book test test-all check lab notebooks sweeps elsewhere pdf epub slides bench gpu lowest newest colab clean
.NOTPARALLEL:

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

book: $(READY)  ## build the book from the committed, executed notebooks and say where it is
	@$(PY) book/tools/build.py

test: $(READY)  ## everything that CI checks, stage by stage; some of it: STAGES="lint types"
	@$(PY) tests/stages.py $(STAGES)

test-all: $(READY)  ## these and what runs once a week: before a change of much is called done
	@$(PY) tests/stages.py all

check: $(READY)  ## first of all, what your change is most likely to have broken; since: BASE=main
	@$(PY) tests/changed.py --base $(or $(BASE),main)

lab: $(READY)  ## open JupyterLab at the contents, in reading order
	@$(PY) -m jupyter lab --config=book/lab/config.py

notebooks: $(READY)  ## re-execute the notebooks whose text, or labkit, has changed; ALL=1: all; BUSY=1: beside other work
	@$(PY) book/tools/notebooks.py run $(if $(ALL),--all) $(if $(BUSY),--busy)

sweeps: $(READY)  ## recompute the long sweeps that labs plot; one of them: NAME=10_2_critical
	@$(PY) book/tools/sweeps.py $(if $(BUSY),--busy) $(NAME)

elsewhere: $(READY)  ## which verdicts would be another on other data, sizes, schedules; of some labs: LABS="10_2 10_8"
	@$(PY) tests/claims/elsewhere.py $(LABS)

pdf: book  ## print the built book to one PDF (needs a Chromium)
	@$(PY) book/tools/pdf.py

epub: $(READY)  ## an EPUB of the book, with formulas as MathML: _build/epub/book.epub
	@rm -rf _build/epub
	@$(dir $(PY))jupyter-book build -q . --all --builder custom --custom-builder epub
	@cd book/tools && $(abspath $(PY)) -c "import build; build.offer()"
	@echo "The book is at _build/epub/book.epub."

slides: $(READY)  ## slides of the labs, in _build/slides; of one: LAB=10_5_all_reduce
	@$(PY) book/tools/slides.py $(LAB)

bench: $(READY)  ## the performance table, ours beside its peers; the book's page is made of it
	@$(PY) tests/bench/run.py
	@$(PY) tests/bench/timing.py
	@$(PY) tests/bench/train.py

gpu: $(READY)  ## on a machine with GPUs, in ten minutes: its tests and the labs, in book/results/<device>.json
	@$(PY) tests/gpu/record.py

lowest:  ## tests and two labs at the oldest versions pyproject.toml allows; another: WITH="torch==2.13.0"
	@$(PYTHON) tests/bounds.py lowest $(WITH)

newest:  ## the same at the newest versions there are, without our pins
	@$(PYTHON) tests/bounds.py newest $(WITH)

colab:  ## two labs from their first cell, at Colab's versions, with labkit from the wheel
	@$(PYTHON) tests/bounds.py colab $(WITH)

clean:  ## remove what was built; .venv stays
	rm -rf _build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

# Touched last, so an interrupted installation is taken up again.
.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "labkit needs Python 3.11 or newer, and $(PYTHON) is not: name one with 'make PYTHON=python3.12 ...'." >&2; exit 1; }
	@echo "Making .venv from pyproject.toml and constraints.txt ..."
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install -qq -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -e '.[dev]' </dev/null
	@touch $@
