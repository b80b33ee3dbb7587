# Every target sets up what it needs. Requires python3 (3.11+), go (1.25+) and node (20.3+).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := $(shell sed -n 's/^uv==\([0-9.]*\).*/\1/p' requirements-dev.lock)
BIN := .venv/bin
PROTOS := $(wildcard proto/chunkstore/v1/*.proto)

.PHONY: help setup tools proto check-proto breaking lint types layers check unit compliance integration clients test demo eval quality bench lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.venv/.ready: requirements-dev.lock pyproject.toml
.venv-bench/.ready: requirements-bench.lock pyproject.toml
.venv/.ready .venv-bench/.ready:
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet uv==$(UV_VERSION)
	$(@D)/bin/uv pip sync --quiet --compile-bytecode --python $(@D)/bin/python --require-hashes $<
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --no-deps --no-build-isolation -e .
	touch $@

setup: .venv/.ready ## Create .venv with every locked dependency and the package itself

.tools/.ready: tools/go.mod tools/go.sum
	cd tools && GOBIN=$(CURDIR)/.tools/bin go install tool
	touch $@

clients/ts/node_modules/.package-lock.json: clients/ts/package.json clients/ts/package-lock.json
	cd clients/ts && npm ci --no-audit --no-fund --silent
	touch $@

tools: .tools/.ready clients/ts/node_modules/.package-lock.json ## Install the stub generators, grpcurl and the TypeScript toolchain

proto: setup tools ## Regenerate the Python, Go and TypeScript stubs from proto/
	rm -rf clients/go/chunkstore clients/ts/src/gen
	find server/chunkstore/v1 -name '*_pb2*' -delete
	$(BIN)/buf generate
	$(BIN)/python -m grpc_tools.protoc -I proto \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=server --grpc_python_out=server --mypy_out=quiet:server --mypy_grpc_out=quiet:server $(PROTOS)

check-proto: proto ## Fail where buf lint complains, a stub is stale, or the contract breaks the last commit's
	$(BIN)/buf lint
	@test -z "$$(git status --porcelain -- server/chunkstore/v1 clients/go/chunkstore clients/ts/src/gen)" || \
	  { git status --short -- server/chunkstore/v1 clients/go/chunkstore clients/ts/src/gen; echo 'stubs are stale: run make proto and commit'; exit 1; }

breaking: setup ## Fail where the contract breaks that of the commit BASE (default: the one before the last)
	$(BIN)/buf breaking --against ".git#ref=$(or $(BASE),$$(git rev-parse --verify --quiet HEAD^ || git rev-parse HEAD))"

lint: setup ## Ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict
	$(BIN)/mypy

layers: setup ## Import contracts: dependencies point one way
	$(BIN)/lint-imports

check: lint types layers check-proto breaking ## Everything that is checked without running the product

unit: setup ## Tests without I/O
	$(BIN)/pytest tests/unit

compliance: setup ## The generated client against a real server, for each store
	$(BIN)/pytest tests/compliance

integration: setup tools ## Facts about PostgreSQL, processes and signals
	$(BIN)/pytest tests/integration

clients: setup tools ## The compiled Go and TypeScript programs against a live server
	$(BIN)/pytest tests/clients

test: check tools ## Set up, check and test everything
	$(BIN)/pytest

demo: setup ## Embedded PostgreSQL, documents streamed in, ranked answers with their channel scores
	$(BIN)/python examples/demo.py

eval: setup ## Measure retrieval on a BEIR folder: make eval DIR=...
	$(BIN)/chunkstore eval $(DIR)

quality: setup ## Measure every BEIR folder in a folder, and write docs/quality.md: make quality DIR=...
	$(BIN)/python tools/quality_table.py $(DIR)

bench: .venv-bench/.ready ## Measure speed beside other stores: make bench [ARGS=--quick]; see docs/how-to/measure-speed.md
	.venv-bench/bin/python -m bench $(ARGS)

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11

lock: setup ## Resolve the locked dependencies anew
	$(LOCK) --upgrade --extra dev --extra plot -o requirements-dev.lock pyproject.toml
	$(LOCK) -c requirements-dev.lock -o requirements.lock pyproject.toml
	$(LOCK) -c requirements-dev.lock --upgrade --extra bench --extra plot -o requirements-bench.lock pyproject.toml

clean: ## Remove everything that setup and builds made
	rm -rf .venv .venv-bench .tools clients/ts/node_modules clients/ts/dist clients/go/bin
