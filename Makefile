# make book, make test, make lab: each needs nothing before it but Python 3.11 to 3.13.
# On Linux without a GPU:  make book TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
TORCH_INDEX ?=
# the seed of `make test-more`: `fresh` takes any and says which
DRAWS ?= fresh
BIN := .venv/bin
READY := .venv/.ready
# three test processes with one thread each: many a test waits, for a deadline or for a process
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
# what was compiled once is kept, for them and for the processes that they start
KEPT := PYTHONDONTWRITEBYTECODE=
# plugins by name: pytest would compile anew all of every package that offers one, in each process
PLUGINS := -p xdist.plugin -p pytest_timeout -p _hypothesis_pytestplugin
PYTEST := PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest $(PLUGINS) -n 3 --dist worksteal

.PHONY: help book test test-more lint lab exercises train bench clean

help:
	@echo "make book       build the book: _build/html/index.html"
	@echo "make test       lint, types, pytest, notebooks: the same answer every time"
	@echo "make test-more  what needs chance or patience: fresh draws, many seeds, mutants"
	@echo "make lab        the exercises in JupyterLab, in my/"
	@echo "make exercises  for authors: solutions/ -> exercises/"
	@echo "make clean      remove what was built (never .venv, never my/)"

$(READY): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(None if ok else \
	    "Python %d.%d is not supported: use 3.11, 3.12 or 3.13, as in: make PYTHON=python3.11" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet --index-url $(TORCH_INDEX) $(shell grep '^torch==' requirements.txt))
	$(BIN)/python -m pip install --quiet -r requirements.txt -c constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

book: $(READY)
	$(BIN)/python tools/book.py

test: $(READY) lint
	$(ONE_THREAD) $(KEPT) PYTHONHASHSEED=0 $(PYTEST) tests

test-more: $(READY)
	$(ONE_THREAD) $(KEPT) $(PYTEST) -m 'more or hypothesis' --draws=$(DRAWS) --timeout 3600 tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab: $(READY)
	$(BIN)/twophase lab

exercises: $(READY)
	$(BIN)/python tools/exercises.py

clean:
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis
