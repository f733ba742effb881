# Needs make, git and Python 3.11 or newer. Everything else goes into .venv.
#
#   make run       a short demo in its own home
#   make test      lint, format, types, import contracts, tests: the same as CI
#   make lint      the same without the tests
#   make shape     check names, docstrings and words, and report how many files a command executes
#   make soak      long runs of the simulator and the crash matrix, and every test on both databases:
#                  make soak SEEDS=10000 ROUNDS=100
#   make mutation  apply each deliberate break of tests/mutation/breaks.toml and check that its test fails
#   make bench     measure Rota and its peers into docs/dev/benchmarks.md; task-spooler and redis-server if installed by apt
#   make openapi   write docs/openapi.json and the generated sections of docs/reference
#   make format    fix lint and format the code
#   make clean     remove everything that the other targets made

PYTHON ?= python3
# If it were set, each process that a test starts would compile all of Rota again.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin

.PHONY: test lint shape soak mutation run bench openapi format clean

test: .venv/dev.stamp
	@$(MAKE) --no-print-directory -j 2 lint .venv/collected.stamp
	$(BIN)/pytest -n 4 --dist worksteal

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/shape.py

shape: .venv/dev.stamp
	$(BIN)/python tools/shape.py
	$(BIN)/python tools/footprint.py

# Compile the tests and Hypothesis' character table once, in parallel with mypy. In a fresh clone each of pytest's four
# processes would do it.
.venv/collected.stamp: .venv/dev.stamp
	@$(BIN)/pytest --collect-only > /dev/null || true
	@$(BIN)/python -c 'from hypothesis.strategies import text; text().validate()'
	@touch $@

SEEDS ?= 10000
ROUNDS ?= 100

soak: .venv/dev.stamp
	$(BIN)/python -m tests.sim 0-$$(($(SEEDS) - 1)) -j 2
	$(BIN)/python -m tests.crash --rounds $(ROUNDS)
	$(BIN)/pytest -n 4 --dist worksteal --postgres all

mutation: .venv/dev.stamp
	$(BIN)/python -m tests.mutation

run: .venv/run.stamp
	PATH="$$PWD/$(BIN):$$PATH" sh examples/first-minute.sh

bench: .venv/bench.stamp
	$(BIN)/python -m bench --write docs/dev/benchmarks.md

openapi: .venv/run.stamp
	$(BIN)/python tools/openapi.py docs
	$(BIN)/python -m tests.docs.generate

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file records the last install, so that pip runs again only when pyproject.toml has changed.

.venv/run.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Dependency groups need pip 25.1. Python 3.11 ships an older one.
.venv/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@ .venv/run.stamp

# Peers from PyPI. task-spooler and redis-server are used if installed by apt.
.venv/bench.stamp: pyproject.toml .venv/dev.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

# Check first: a venv that fails halfway leaves a python behind that looks usable.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Rota needs Python 3.11 or newer as $(PYTHON); name another one: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
