# Everything here needs only make, git and Python 3.11 or newer; the rest goes into .venv.
#
#   make run       the first minute with Rota, in a home of its own
#   make test      all that CI does: lint, format, types, layers, tests
#   make soak      the simulator and the crash matrix at length: make soak SEEDS=10000 ROUNDS=100
#   make mutation  break the code on purpose, once for each line of a list, and see that its test fails
#   make bench     what Rota costs, into docs/benchmarks.md; also task-spooler and redis-server, where apt has put them
#   make openapi   write docs/openapi.json and the table in docs/problems.md, as the code has them
#   make format    write the format instead of checking it
#   make clean     remove what the others made

PYTHON ?= python3
# Without it every process that a test starts compiles all of Rota again.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin

.PHONY: test soak mutation run bench openapi format clean

test: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -n 4 --dist worksteal

SEEDS ?= 10000
ROUNDS ?= 100

soak: .venv/dev.stamp
	PYTHONPATH=tests $(BIN)/python -m sim 0-$$(($(SEEDS) - 1)) -j 2
	PYTHONPATH=tests $(BIN)/python -m crash --rounds $(ROUNDS)

mutation: .venv/dev.stamp
	PYTHONPATH=tests $(BIN)/python -m mutation

run: .venv/run.stamp
	PATH="$$PWD/$(BIN):$$PATH" sh examples/first-minute.sh

bench: .venv/bench.stamp
	$(BIN)/python -m bench --write docs/benchmarks.md

openapi: .venv/run.stamp
	$(BIN)/python -m rota.api.openapi docs

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is as old as the last install, so that pip runs again only after pyproject.toml has changed.

.venv/run.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Dependency groups need pip 25.1, which is newer than the pip that Python 3.11 brings along.
.venv/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@ .venv/run.stamp

# The peers that pip can install; task-spooler and redis-server are used where installed (apt install both).
.venv/bench.stamp: pyproject.toml .venv/dev.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

# Asked before anything is made: a venv that fails half-way leaves a python behind that looks usable.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Rota needs Python 3.11 or newer as $(PYTHON); name another one: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
