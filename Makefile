# Every command a person types. Each makes .venv first: with uv where it is installed, with pip otherwise.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
WHICH := -c 'import sys; print(sys.version)'
.DEFAULT_GOAL := help
.PHONY: FORCE help venv demo test test-cluster test-image cluster-binaries check bench lock clean

help: ## what there is to type
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: .venv/.installed ## make or refresh .venv (done by the others when needed)

# A PYTHON that was asked for and is not the one of .venv: .venv is made anew.
ifneq ($(origin PYTHON),file)
ifneq ($(shell "$(PYTHON)" $(WHICH) 2>&1),$(shell $(BIN)/python $(WHICH) 2>&1))
.venv/.installed: FORCE
endif
endif

.venv/.installed: pyproject.toml requirements-dev.lock
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Overspill needs Python 3.11 or newer on the PATH (or PYTHON=/path/to/python)." >&2; exit 2; }
	@if [ -e .venv ] && [ "$$("$(PYTHON)" $(WHICH))" != "$$($(BIN)/python $(WHICH) 2>&1)" ]; then \
	  echo "replacing .venv, which is of another Python" >&2; rm -rf .venv; fi
	@echo "installing into .venv (once)…" >&2
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python "$(PYTHON)" .venv && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps -e .; \
	else \
	  "$(PYTHON)" -m venv .venv && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .; \
	fi
	@touch $@

demo: venv ## the whole story in the lab: overflow, and home again
	@$(BIN)/overspill demo $(DEMO_ARGS)

test: venv ## the test suite (real nats-server; no network)
	@$(BIN)/python -m pytest -m "not cluster and not image" -n 6 --dist worksteal $(TEST_ARGS)

test-cluster: venv ## what only a real Kubernetes can judge, on a control plane built once (needs Go), and the lab beside it
	@$(BIN)/python -m pytest tests/contract/kubernetes tests/cluster tests/component/overspill_kube -m "cluster or not cluster" $(TEST_ARGS)

cluster-binaries: venv ## build etcd, Kubernetes, kubectl, KWOK, Prometheus once (about 12 minutes on two cores, then nothing)
	@$(BIN)/python -m tests.cluster.controlplane.build

cluster: venv ## a control plane of them until Ctrl-C, on loopback; prints its kubeconfig
	@$(BIN)/python -m tests.cluster.controlplane

test-image: venv ## build the image and start every service in it (needs a Docker engine)
	@$(BIN)/python -m pytest tests/image -m image -n 0 $(TEST_ARGS)

check: venv ## format, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: venv ## figures as JSON on stdout; on the real control plane too once `make cluster-binaries` has run
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

lock: ## pin again after a change of pyproject.toml (needs uv)
	@for spec in "requirements.lock recorder" "requirements-dev.lock dev"; do set -- $$spec; \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	    --no-emit-package overspill --extra $$2 pyproject.toml -o $$1; done
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --group build -o requirements-build.lock

clean: ## remove .venv and caches
	@rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis
