# From a fresh clone: `make demo` and `make test` each do all their set-up first. `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check
MODEL   = smollm2-135m-q4
FINDING = bert-hans
JOBS   ?= $(shell nproc 2> /dev/null || echo 2)

.PHONY: help demo test test-all test-long test-gpu bench lint docs wheel hashes clean setup setup-dev

# pip's report -> one pinned and hashed line per package
define HASHES
import json, sys
for one in json.load(sys.stdin)["install"]:
    said, hashes = one["metadata"], one["download_info"].get("archive_info", {}).get("hashes", {})
    if "sha256" in hashes:
        print(said["name"] + "==" + said["version"] + " --hash=sha256:" + hashes["sha256"])
endef
export HASHES

help:             ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

demo: $(VENV)/.core   ## a report of real runs in a minute (runs/bert-hans.html), then torch, then a study of some ten minutes (runs/demo/report.html)
	@echo "a report of 100 published runs, before torch is installed (open it meanwhile):"
	$(BIN)/oodles report $(FINDING) --out runs/$(FINDING).html
	$(MAKE) --no-print-directory setup
	$(BIN)/oodles fetch $(MODEL)
	$(BIN)/oodles demo $(DEMO_ARGS)

test: setup-dev lint   ## lint, types and tests, on all cores
	$(BIN)/oodles fetch $(MODEL)
	$(BIN)/oodles fetch tiny-llama-untrained
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-all: test build/oracles build/deepspeed   ## and the tests that take their time: several processes, faults, memory, examples and pages that train
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/build/oracles OODLES_DEEPSPEED=$(CURDIR)/build/deepspeed $(BIN)/python -m pytest -m slow --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-gpu: setup-dev    ## on a machine with one GPU or several, some minutes; please send us build/gpu.txt
	$(BIN)/oodles fetch tiny-llama-untrained
	mkdir -p build
	$(BIN)/python -m pytest -m gpu -rA --color=no $(PYTEST_ARGS) tests/test_gpu.py > build/gpu.txt 2>&1; code=$$?; cat build/gpu.txt; exit $$code

test-long: setup-dev build/oracles build/deepspeed   ## campaigns too long for every day (some hours); their figures go into docs/
	$(BIN)/oodles fetch $(MODEL)
	$(BIN)/oodles fetch gemma3-270m-q4
	PYTHONPATH=$(CURDIR)/build/oracles OODLES_DEEPSPEED=$(CURDIR)/build/deepspeed $(BIN)/python -m pytest -m long --timeout 7200 $(PYTEST_ARGS)
	PYTHONPATH=$(CURDIR)/build/oracles $(BIN)/python -m benchmarks.statistics --long --seed 0 --out build/statistics.json
	$(BIN)/python -m benchmarks.statistics --merge build/statistics.json
	$(BIN)/python -m benchmarks.statistics --table build/statistics.json --into docs/statistics-evidence.md
	$(BIN)/python -m benchmarks.claim --long --seed 0 --out build/claim.json
	$(BIN)/python -m benchmarks.claim --merge build/claim.json
	$(BIN)/python -m benchmarks.claim --table build/claim.json --into docs/statistics-evidence.md
	$(BIN)/python -m benchmarks.noise --long --seed 0 --out build/noise.json
	$(BIN)/python -m benchmarks.noise --merge build/noise.json
	$(BIN)/python -m benchmarks.noise --table build/noise.json --into docs/statistics-evidence.md
	$(BIN)/python -m benchmarks.noise --confirm --seed 1 --out build/noise-confirm.json
	$(BIN)/python -m benchmarks.noise --merge build/noise-confirm.json
	$(BIN)/python -m benchmarks.noise --table build/noise-confirm.json --into docs/statistics-evidence.md
	$(BIN)/python -m benchmarks.families --cells confirm --seed 0 --out build/families-confirm.json
	$(BIN)/python -m benchmarks.families --merge build/families-confirm.json
	$(BIN)/python -m benchmarks.families --table build/families-confirm.json --into docs/statistics-evidence.md
	$(BIN)/python -m benchmarks.answers --sets 200 --seed 21 --out build/answers.json
	$(BIN)/python -m benchmarks.answers --merge build/answers.json
	$(BIN)/python -m benchmarks.answers --table build/answers.json --into docs/statistics-evidence.md

bench: setup-dev build/oracles       ## benchmarks, into benchmarks/results.json and docs/performance.md
	$(BIN)/oodles fetch $(MODEL)
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/build/oracles $(BIN)/python -m benchmarks --only statistics
	PYTHONPATH=$(CURDIR)/build/oracles $(BIN)/python -m benchmarks --only scoring $(BENCH_ARGS)
	$(BIN)/python -m benchmarks --only training
	$(BIN)/python -m benchmarks --only grid
	$(BIN)/python -m benchmarks --only stored
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --only report
	$(BIN)/python -m benchmarks --only imports
	PYTHONPATH=$(CURDIR)/build/oracles $(BIN)/python -m benchmarks --only tasks

lint: setup-dev        ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs    ## the docs site, into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the site: build/site/index.html"

wheel: $(VENV)/.build  ## wheel and source, into dist/; then a smoke test of the wheel in an empty environment
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist .
	PIP_CONSTRAINT=constraints.txt $(BIN)/python tests/smoke.py dist/*.whl

hashes: | $(BIN)/python   ## for those who want them: build/requirements.txt, every file of this platform with its hash
	mkdir -p build
	$(PIP) install --quiet --dry-run --ignore-installed --report build/report.json '.[train,data,slurm,trackers,dev,docs]'
	$(BIN)/python -c "$$HASHES" < build/report.json > build/requirements.txt
	@echo "now: $(BIN)/python -m pip install --require-hashes --requirement build/requirements.txt"

clean:            ## remove the environment and caches; keeps runs/
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

setup: $(VENV)/.train
setup-dev: $(VENV)/.dev

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "oodles needs Python 3.11 or later; set PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# what the benchmarks and slow tests compare with: aside, without its pins (trackio wants an older pillow), never in
# the environment itself
build/oracles: | $(VENV)/.dev
	$(PIP) install --quiet --no-deps --target $@ pygam progressbar2 python-utils axe-playwright-python
	$(PIP) install --quiet --no-deps --target $@ lm_eval sacrebleu portalocker tabulate colorama lxml
	$(PIP) install --quiet --no-deps --target $@ pytablewriter DataProperty mbstrdecoder pathvalidate tabledata tcolorpy typepy chardet pytz
	$(PIP) install --quiet --no-deps --target $@ trackio gradio_client brotli orjson python-multipart starlette uvicorn

# for the engines zero2 and zero3: aside, because other libraries behave differently where they find it
build/deepspeed: | $(VENV)/.dev
	$(PIP) install --quiet --no-deps --target $@ deepspeed hjson ninja einops msgpack py-cpuinfo

# Versions come from constraints.txt, for what builds oodles too: PIP_CONSTRAINT, which --constraint is not.
# Analysis and reports: no package of these asks for torch
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing analysis and reports into $(VENV) (less than a minute)"
	$(PIP) install --quiet --editable .
	touch $@

# torch first and alone: a package that asks for any torch must find the pinned one there
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing torch and what trains into $(VENV) (5 to 10 minutes the first time, 1.7 GB from PyPI)"
	$(PIP) install --quiet torch
	touch $@

$(VENV)/.train: pyproject.toml $(VENV)/.torch
	$(PIP) install --quiet --editable '.[train]'
	touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(PIP) install --quiet --editable '.[train,data,slurm,trackers,dev,docs]'
	touch $@ $(VENV)/.core $(VENV)/.train $(VENV)/.docs

# neither needs torch
$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --editable '.[docs]'
	touch $@

$(VENV)/.build: constraints.txt | $(BIN)/python
	$(PIP) install --quiet build
	touch $@
