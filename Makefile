# `make demo` and `make test` are the two commands; each sets up what it needs on a fresh clone.
# What was set up is remembered by a stamp in .venv, so a second run starts at once.

VENV := .venv
BIN := $(VENV)/bin
LOWEST := build/lowest
# One more than the processors of the CI: a fifth to a half of the time a test waits.
TEST_WORKERS ?= 3
SEEDS ?= 10000:10300
MINUTES ?= 10
N ?= 1000000
PART ?= 1/1
COMPILED := build/compiled
export DEBIAN_FRONTEND := noninteractive
# Commands, brokers and workers by the thousand start sooner with the bytecode of the one before.
unexport PYTHONDONTWRITEBYTECODE

extras_demo := all,demo
extras_test := all,demo,test,docs
extras_check := all,demo,test,dev
extras_docs := docs

# Each dependency has its tests here, of those that start processes.
lowest_tests := tests/building tests/zk \
  tests/clients/command_line tests/clients/kgroup/test_command.py tests/clients/kgroup/test_completion.py \
  tests/clients/serve tests/broker/metrics \
  tests/protocol/test_compression.py tests/interop/test_kafka_python.py tests/interop/test_aiokafka.py \
  tests/interop/test_confluent_kafka.py tests/interop/test_idempotent_producers.py \
  tests/spark/test_query.py tests/spark/test_listeners.py tests/spark/pipelines tests/spark/sink/test_packing.py

# The files with combinations that `make test` does not take, and those on ZooKeepers of each version.
product_tests = $(shell grep -rl --include='test_*.py' 'mark\.product' tests) tests/zk/session \
  tests/groups/zookeeper/test_member.py

PYTHON_NEEDED := Python 3.11 or newer is needed, with its venv. Debian: apt-get install python3 python3-venv.
NOT_COMPILED := dist has the pure wheel alone: to compile it takes a C compiler and the headers of Python. \
  Debian: apt-get install gcc python3-dev
JAVA_NEEDED := Java 17 or newer is needed (Spark and the embedded ZooKeeper run on it). \
  Debian: apt-get install default-jre-headless. Ubuntu: apt-get install openjdk-17-jre-headless. macOS: brew install openjdk@17. Or set JAVA_HOME.

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-compiled check bench bench-compiled mutants simulate chaos fuzz scale interop test-lowest \
  docs man dist clean java compiled

help:
	@echo 'make demo     the whole system at work on real data'
	@echo 'make test     the tests (PYTEST_ARGS=… goes to pytest)'
	@echo 'make test-fast  the tests of pure code alone, in a few minutes'
	@echo 'make test-compiled  the tests on a copy with the hot loops compiled'
	@echo 'make check    formatting, lint, types, layers'
	@echo 'make bench    our speed beside stock Kafka, same machine, same run'
	@echo 'make bench-compiled  the same with the hot loops compiled'
	@echo 'make mutants  take each remedy against a hazard away: the tests must notice'
	@echo 'make simulate SEEDS=1000:2000   more stories of a group and of a cluster than the tests tell'
	@echo 'make chaos MINUTES=10   real brokers killed, frozen and cut off under load (SEED=… for one again), then transactions of'
	@echo '              all kinds of clients; TRANSACTIONS=1 for these alone'
	@echo 'make fuzz N=1000000   sound and bent requests to a real broker (SEED=… for the same again)'
	@echo 'make scale    how costs grow with the number of partitions, topics, groups and more (SIZES=100:1000)'
	@echo '              PEER=1: then a few of them beside stock Kafka, or PEER=DIR with its jars'
	@echo 'make interop PART=1/4   all combinations of which make test takes a few: stock clients of every kind in every scenario,'
	@echo '              faults under Spark, deaths in migrations, crashes at each byte,'
	@echo '              and the tests of other projects: of kafka-python, sarama, franz-go, librdkafka, rust-rdkafka'
	@echo 'make test-lowest   the tests of what we depend on, with the lowest versions that pyproject.toml allows'
	@echo 'make docs     the documentation as a site, in build/site'
	@echo 'make man      the manual pages of both commands, in build/man'
	@echo 'make dist     the wheels, compiled and pure, and the sdist, in dist'
	@echo 'make install  the virtual environment alone'
	@echo 'make clean    removes what these made'

install: java $(VENV)/.demo

demo: java $(VENV)/.demo
	$(BIN)/python -m examples.demo

test: java $(VENV)/.test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile -m fast $(PYTEST_ARGS)

# Left out: tests that build wheels, for those come from sources alone; and mutants, which change
# sources beside which the compiled code lies.
test-compiled: java compiled
	cd $(COMPILED) && PYTHONPATH=$$PWD KGROUP_TEST_COMPILED=1 $(CURDIR)/$(BIN)/python -m pytest \
	  -n $(TEST_WORKERS) --dist loadfile --ignore tests/mutants \
	  --ignore tests/building/test_compiled_wheel.py --ignore tests/building/test_wheel.py $(PYTEST_ARGS)

compiled: $(VENV)/.test
	$(BIN)/python -m building.compiled $(COMPILED)

check: $(VENV)/.check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/python -m pytest tests/test_layers.py

bench: java $(VENV)/.test
	$(BIN)/python -m benchmarks

bench-compiled: java compiled
	cd $(COMPILED) && PYTHONPATH=$$PWD $(CURDIR)/$(BIN)/python -m benchmarks

mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants $(HAZARDS)

simulate: $(VENV)/.test
	$(BIN)/python -m tests.groups.zookeeper.simulate $(SEEDS)
	$(BIN)/python -m tests.simulation $(SEEDS)
	$(BIN)/python -m tests.transactions.story $(SEEDS)

chaos: java $(VENV)/.test
	$(if $(TRANSACTIONS),,$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)))
	$(BIN)/python -m tests.chaos.transactions --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz: java $(VENV)/.test
	$(BIN)/python -m tests.fuzz --frames $(N) $(if $(SEED),--seed $(SEED))

scale: $(VENV)/.test
	$(BIN)/python -m tests.scale $(SIZES)
	$(if $(PEER),$(BIN)/python -m tests.scale.beside_peer $(filter-out 1,$(PEER)))

interop: java $(VENV)/.test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --product $(PART) $(product_tests) $(PYTEST_ARGS)

# The linters are at their lowest and read our types of the newest libraries, as `make check` does.
test-lowest: java $(LOWEST)/.installed
	$(LOWEST)/bin/ruff check .
	$(LOWEST)/bin/mypy --strict --python-executable $(BIN)/python --cache-dir $(LOWEST)/mypy
	$(LOWEST)/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile -m fast $(PYTEST_ARGS)
	$(LOWEST)/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile $(lowest_tests) $(PYTEST_ARGS)
	$(LOWEST)/bin/python -m examples.demo

# A warning is an error. The variable silences what mkdocs-material says about MkDocs 2.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'build/site/index.html; to search: $(BIN)/python -m http.server -d build/site'

man: $(VENV)/.demo
	$(BIN)/python -m clients.command_line.man_pages build/man/man1

dist: $(VENV)/.test
	rm -rf dist && mkdir dist
	$(BIN)/python -c 'from building.backend import build_sdist; build_sdist("dist")'
	KGROUP_PURE=1 $(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(if $(KGROUP_PURE),,$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .)
	$(if $(KGROUP_PURE),,@ls dist/*-cp3*.whl >/dev/null 2>&1 || echo '$(NOT_COMPILED)')
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist *.egg-info demo-out .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras, made again when the dependencies may have changed.
$(VENV)/.demo $(VENV)/.test $(VENV)/.check $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(extras_$*)]'
	@touch $@

# What our dependencies depend on is new; pip is what builds the wheel in a test.
$(LOWEST)/.installed: pyproject.toml | $(VENV)/.check
	$(BIN)/uv venv --quiet --clear --seed --python 3.11 $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct -r pyproject.toml --all-extras
	$(BIN)/uv pip install --quiet --python $(LOWEST) --no-deps -e .
	@touch $@

# Debian ships Python without ensurepip, which venv needs, until python3-venv is installed.
$(BIN)/python:
	@make_venv() { \
	  for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      echo "$$python -m venv $(VENV)"; \
	      $$python -m venv $(VENV) && return 0; \
	      rm -rf $(VENV); \
	    fi; \
	  done; \
	  return 1; \
	}; \
	make_venv && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update && apt-get install -y python3 python3-venv && make_venv && exit 0; \
	fi; \
	echo 'error: $(PYTHON_NEEDED)' >&2; exit 1

# Newer Debians no longer have 17; their default is newer still.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	if [ "$${version:-0}" -ge 17 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update && { apt-get install -y openjdk-17-jre-headless \
	    || apt-get install -y default-jre-headless; } && exit 0; \
	fi; \
	echo 'error: $(JAVA_NEEDED)' >&2; exit 1
