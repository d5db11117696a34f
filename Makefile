# Everything here runs from a fresh clone: `make demo` shows the package at work, `make test`
# checks it. Paths are relative, so that the name of the directory may hold spaces.

PYTHON ?= python3
ARVIZ1_PYTHON ?= python3.12
BIN := .venv/bin
# Modules are compiled when they are first imported, which most never are.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile \
    --constraint constraints.txt
SPHINX := $(BIN)/python -m sphinx --fail-on-warning --keep-going --jobs 2
DIST_PIP := .venv-dist/bin/python -m pip --disable-pip-version-check install --quiet --no-compile

# On problems as small as the demo and the tests, more threads only wait for each other.
export OMP_NUM_THREADS := 1
export MPLBACKEND := Agg

# The tests start many processes, of which only the first need compile the modules.
export PYTHONDONTWRITEBYTECODE :=

# Which tests are fast; `make check` leaves those out that test-portable runs.
FAST := not statistical and not browser

# Numerical libraries choose their kernels by the CPU, and each kernel rounds in its own way. The
# first setting is below every x86 CPU; other CPUs ignore it. The second is below this one.
OLD_KERNELS := OPENBLAS_CORETYPE=Prescott ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE
AVX_KERNELS := OPENBLAS_CORETYPE=Sandybridge ATEN_CPU_CAPABILITY=default MKL_CBWR=AVX
AVX2_KERNELS := OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2

# Files with tests of numerical results: to import all takes longer than many of these tests.
PORTABLE = $(shell grep -rl mark.portable tests --include='test_*.py')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo analysis check test test-fast test-portable test-browser test-kernels test-statistical \
    test-oldest test-newest test-arviz1 coverage docs docs-check lint bench guard dist test-dist audit clean

help:
	@echo "make demo              a run on real data that ends in a report, results/tumours/report.html"
	@echo "make analysis          one analysis from question to answer (one minute); results/analysis"
	@echo "make check             what a change must pass (.ci/run): lint, fast and portable tests, links of the site"
	@echo "make test              formatting, lint, types, layers and the fast tests"
	@echo "make test-fast         the fast tests only"
	@echo "make test-portable     the tests of numerical results again, with the kernels of old CPUs"
	@echo "make test-browser      the report in Chromium"
	@echo "make test-kernels      the same, and once more with those of a CPU before this one"
	@echo "make test-statistical  the long tests of the inference"
	@echo "make test-oldest       the fast tests with the oldest allowed versions of all dependencies"
	@echo "make test-newest       the same with the newest versions that the index has"
	@echo "make test-arviz1       what has to do with ArviZ under ArviZ 1.x, which needs Python 3.12"
	@echo "make docs-check        links and references of the site, without running its pages"
	@echo "make docs              the site, docs/_build/html/index.html (five minutes, later less)"
	@echo "make coverage          the fast tests again, with the share of lines and branches they run"
	@echo "make lint              formatting, lint, types and layers only"
	@echo "make bench             time the steps of the inference"
	@echo "make guard             fail if default fits have become slower beside a forest"
	@echo "make dist              wheel and source distribution; dist/"
	@echo "make test-dist         each of them installed and tried, and the fast tests of the latter"
	@echo "make audit             known vulnerabilities of the pinned versions, oldest and newest"
	@echo "make clean             remove .venv, caches and results"

demo: .venv/runtime.stamp
	@$(BIN)/bayestree run examples/tumours.toml --force

analysis: .venv/runtime.stamp
	@$(BIN)/python examples/analysis.py

# The lint keeps one core busy, and the tests wait now and then: together they take less time.
test:
	$(MAKE) --jobs=2 lint test-fast

# One installation, and then all at once.
check: .venv/check.stamp
	$(MAKE) --jobs=2 test-fast lint docs-check test-portable FAST="$(FAST) and not portable"
	$(BIN)/python -m tests.budgets build/fast.xml

# Each process keeps to neighbouring files, which share fitted trees, until it has to help the other.
test-fast: .venv/compiled.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(FAST)" --junitxml build/fast.xml

test-portable: .venv/compiled.stamp
	$(OLD_KERNELS) $(BIN)/python -m pytest -n 2 -m "portable and not statistical" $(PORTABLE)

test-kernels: test-portable
	@case "$$($(BIN)/python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())')" in \
	    AVX512) kernels="$(AVX2_KERNELS)" ;; \
	    AVX2) kernels="$(AVX_KERNELS)" ;; \
	    *) exit 0 ;; \
	esac; \
	set -x; env $$kernels $(BIN)/python -m pytest -n 2 -m "portable and not statistical" $(PORTABLE)

test-browser: .venv/test.stamp
	$(BIN)/python -m pytest -m browser tests/report

test-statistical: .venv/test.stamp
	$(BIN)/python -m pytest -n 2 --timeout 7200 -m statistical

coverage: .venv/test.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(FAST)" --cov --cov-report term

# Old versions warn of what newer ones of their own dependencies deprecate, and a page may show what
# only newer ones have.
test-oldest: .venv-oldest/test.stamp
	.venv-oldest/bin/python -m pytest -n 2 --dist worksteal -W default -W "ignore:the fit has not converged" \
	    --deselect tests/test_examples.py::test_python_of_the_pages_runs -m "$(FAST)"

test-newest: .venv-newest/test.stamp
	.venv-newest/bin/python -m pytest -n 2 --dist worksteal -m "$(FAST)"

# What mentions ArviZ, there; and files that both versions of it exchange.
test-arviz1: .venv/test.stamp .venv-arviz1/test.stamp
	.venv-arviz1/bin/python -m pytest -n 2 -m "$(FAST)" $(shell grep -rl arviz tests --include='test_*.py')
	$(BIN)/python -m pytest tests/test_arviz1.py

# Sphinx fails on any warning. What pages print is cached by a digest of the package and its data: a
# change there executes all pages again, a change of a page that page only.
docs: .venv/docs.stamp
	$(SPHINX) --builder html docs docs/_build/html
	@echo "Open docs/_build/html/index.html."

docs-check: .venv/docs.stamp
	$(SPHINX) --builder dummy -D nb_execution_mode=off -D plot_gallery=0 docs docs/_build/checked

lint: .venv/test.stamp
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

bench: .venv/runtime.stamp
	$(BIN)/python benchmarks/steps.py

# Fails if default fits have become slower beside a forest.
guard: .venv/runtime.stamp
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/guard.py

# With TAG, as in TAG=v0.2.0, the version must be this one. Every tool that takes part in the build is
# pinned by the hash of its file.
dist:
	rm -rf dist .venv-dist
	$(PYTHON) -m venv .venv-dist
	$(DIST_PIP) --require-hashes --requirement requirements-release.txt
	.venv-dist/bin/python -m build --no-isolation
	.venv-dist/bin/python -m twine check --strict dist/*
	test -z "$(TAG)" || test -f "dist/bayestree-$(patsubst v%,%,$(TAG)).tar.gz"

# Wheel and source distribution are each installed into an empty environment, and make the run of the
# demo. Then the fast tests of the source distribution run.
test-dist:
	set -e; for package in dist/*; do \
	    $(PYTHON) -m venv --clear .venv-dist; \
	    $(DIST_PIP) --constraint constraints.txt "$$package"; \
	    .venv-dist/bin/bayestree --version; \
	    .venv-dist/bin/bayestree run examples/tumours.toml --force; \
	done
	rm -rf build/sdist
	mkdir -p build/sdist
	tar -xzf dist/bayestree-*.tar.gz -C build/sdist --strip-components 1
	$(MAKE) -C build/sdist test-fast

# Each advisory that does not concern this package is named here, with the reason.
audit:
	$(PYTHON) -m venv --clear .venv-dist
	$(DIST_PIP) pip-audit
	set -e; for pins in constraints.txt constraints-oldest.txt; do \
	    .venv-dist/bin/python -m pip_audit --no-deps --disable-pip --requirement $$pins; \
	done
	.venv-dist/bin/python -m pip_audit --require-hashes --disable-pip --requirement requirements-release.txt

clean:
	rm -rf .venv .venv-* results build dist .mypy_cache .ruff_cache \
	    .pytest_cache .hypothesis .import_linter_cache .coverage coverage.xml \
	    docs/_build docs/api/generated docs/auto_gallery docs/benchmarks/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps keep a second run from installing again.

.venv/created.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "bayestree needs Python 3.11 or later, but $(PYTHON) is:" \
	        "$$($(PYTHON) --version 2>&1)." \
	        "Name another one, as in: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/runtime.stamp: .venv/created.stamp pyproject.toml constraints.txt
	@echo "Installing bayestree and what it needs into .venv; this takes a few minutes once."
	$(PIP) --editable .
	@touch $@

.venv/test.stamp: .venv/created.stamp pyproject.toml constraints.txt
	@echo "Installing bayestree and what its tests need into .venv; this takes a few minutes once."
	$(PIP) --editable ".[test]"
	@touch .venv/runtime.stamp $@

# The first tests that need them compile the samplers, and keep the code: once, and not in each process
# and in the time of whichever test comes first.
.venv/compiled.stamp: .venv/test.stamp $(wildcard bayestree/inference/core/*.py)
	$(BIN)/python -m pytest -q -m "$(FAST)" -k "test_ratio or test_default_steepness or test_short" \
	    tests/inference/core/test_experts.py tests/estimators/test_auto.py tests/statistical/test_mcmc.py
	@touch $@

.venv/docs.stamp: .venv/created.stamp pyproject.toml constraints.txt
	$(PIP) --editable ".[docs]"
	@touch $@

.venv-oldest/test.stamp: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip --disable-pip-version-check install --quiet \
	    --constraint constraints-oldest.txt --editable ".[test]"
	@touch $@

.venv/check.stamp: .venv/created.stamp pyproject.toml constraints.txt
	$(PIP) --editable ".[test,docs]"
	@touch .venv/runtime.stamp .venv/test.stamp .venv/docs.stamp $@

# Without a stamp, and so always anew: what is newest changes.
.venv-newest/test.stamp:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[test]"
	.venv-newest/bin/python -m pip freeze --exclude-editable

.venv-arviz1/test.stamp: pyproject.toml
	@$(ARVIZ1_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { \
	    echo "ArviZ 1.x needs Python 3.12 or later. Name one, as in:" \
	        "make ARVIZ1_PYTHON=/path/to/python3.12 test-arviz1" >&2; exit 1; }
	$(ARVIZ1_PYTHON) -m venv --clear .venv-arviz1
	.venv-arviz1/bin/python -m pip --disable-pip-version-check install --quiet "arviz>=1" --editable ".[test]"
	@touch $@
