# Every target sets up .venv by itself; `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
# `make bundle PYTHON=3.12` names a version to pack for, not an interpreter to install with
INTERPRETER := $(if $(filter 3.%,$(PYTHON)),python3,$(PYTHON))
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS ?= dev,sweep
PAPER ?= dp_swd
PROFILE ?= auto
DATA ?= mnist,fashion_mnist,usps
WEIGHTS ?=
ARGS ?=
SECONDS ?= 60
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help setup engines lock test lint types format reproduce-all compare report readme audits bench fuzz kills attacks bundle bill wheel clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-zA-Z0-9_%-]+:.*## / {printf "  %-26s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PAPER=dp_swd|dp_sinkhorn|wdp|triangle_wad|sketch|tables   PROFILE=auto|paper|short|quick|smoke   DRY_RUN=1"

$(STAMP): pyproject.toml setup.py constraints.txt
	@$(INTERPRETER) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dpot needs Python 3.11 or newer (PYTHON=python3.12 make ...)"; exit 1; }
	test -x $(BIN)/python || $(INTERPRETER) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

setup: $(STAMP) ## install the suite into .venv

engines: $(STAMP) ## install Ray and PySpark too, so that their tests run (Java comes from the system)
	$(BIN)/python -c 'import ray, pyspark' 2> /dev/null || $(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS),ray,spark]'

lock: $(STAMP) ## renew constraints.txt (the newest versions that pyproject.toml admits) and requirements-hashed.txt
	$(BIN)/python scripts/lock.py $(EXTRAS),ray,spark

test: $(STAMP) ## run the tests (9 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

lint: $(STAMP) ## ruff: style and format
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP) ## mypy
	$(BIN)/mypy

format: $(STAMP) ## rewrite the sources in house style
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

reproduce-table-%: $(STAMP) ## Table N of PAPER, beside the published numbers: make reproduce-table-2
	$(BIN)/dpot task=reproduce paper=$(PAPER) table=$* profile=$(PROFILE) $(if $(DRY_RUN),task.dry_run=true) $(ARGS)

reproduce-figure-%: $(STAMP) ## Figure N of PAPER
	$(BIN)/dpot task=reproduce paper=$(PAPER) figure=$* profile=$(PROFILE) $(if $(DRY_RUN),task.dry_run=true) $(ARGS)

reproduce-all: $(STAMP) ## every sheet in experiments/
	$(BIN)/dpot task=reproduce task.all=true profile=$(PROFILE) $(if $(DRY_RUN),task.dry_run=true) $(ARGS)

compare: $(STAMP) ## compare what is on record with the published numbers: make compare TABLE=2
	$(BIN)/dpot task=compare paper=$(PAPER) $(if $(TABLE),table=$(TABLE)) $(ARGS)

report: $(STAMP) ## everything on record as a folder of web pages: report/index.html
	$(BIN)/dpot task=report task.folder=report $(ARGS)

readme: $(STAMP) ## write results/README.md and the numbers of README.md anew from the committed results
	$(BIN)/python scripts/write_readme.py

audits: $(STAMP) ## audit every private method again (7 minutes on one core), written to results/audit/: make audits ARGS=dp_swd
	OMP_NUM_THREADS=1 $(BIN)/python scripts/audits.py $(ARGS)
	$(BIN)/python scripts/write_readme.py

bench: $(STAMP) ## benchmarks, written to results/bench/
	for script in scripts/bench_*.py; do $(BIN)/python $$script $(ARGS) || exit 1; done

fuzz: $(STAMP) ## damaged files for every loader, on all cores: make fuzz SECONDS=600
	OMP_NUM_THREADS=1 $(BIN)/python scripts/fuzz.py --seconds $(SECONDS) $(ARGS)

kills: $(STAMP) ## kill small runs at each of their file operations and start them again (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python scripts/kill_everywhere.py $(ARGS)

attacks: $(STAMP) ## try configurations that somebody might send you (some minutes)
	$(BIN)/python scripts/attacks.py $(ARGS)

bill: $(STAMP) ## the bill of materials of a release: dist/dpot-VERSION.cdx.json
	$(BIN)/python scripts/materials.py bill

bundle: $(STAMP) ## pack code, wheels, data for a machine without network: make bundle PYTHON=3.12 DATA=mnist WEIGHTS=inception
	$(BIN)/python scripts/bundle.py --python $(or $(filter 3.%,$(PYTHON)),3.12) --data "$(DATA)" --weights "$(WEIGHTS)" $(ARGS)

wheel: $(STAMP) ## build the package in dist/ and try it in an environment of its own, away from the clone
	rm -rf build dist && $(BIN)/python -m pip wheel -q --no-deps -w dist .
	$(BIN)/python scripts/try_wheel.py dist

clean: ## remove what was built, keep the runs
	rm -rf $(VENV) bundle build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
