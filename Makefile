# Targets explain themselves: `make` prints them. Everything they make lives in .flinkstyle/.
PYTHON ?= python3
AIRFLOW_BIN := .flinkstyle/venv-airflow/bin
GUARDED := $(AIRFLOW_BIN)/python testbed/guard.py --

# Java names its temporary folder itself, so both are told.
export TMPDIR := $(CURDIR)/.flinkstyle/tmp
export JDK_JAVA_OPTIONS := "-Djava.io.tmpdir=$(TMPDIR)"

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make both virtual environments and fetch the jars (seconds when nothing changed)
	@mkdir -p "$(TMPDIR)"
	@$(PYTHON) -m tools.setup

lint: setup ## Check style, types and layers
	@$(AIRFLOW_BIN)/python -m tools.run_tests test lint

test: setup ## Check style and run the tests that a change waits for, on the real components
	@$(PYTHON) -m tools.system
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.run_tests test

nightly: setup ## Run the other tests: long, more cases of a kind, chaos
	@$(PYTHON) -m tools.system
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.run_tests nightly

matrix: setup ## Run every operator, store and provider of which the other two run a few
	@$(PYTHON) -m tools.system
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.run_tests matrix

test-unit: setup ## Run the tests that need no JVM
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.run_tests test unit

test-versions: setup ## Run the Spark side's tests on Spark 3.5 to 4.3, into docs/compatibility.md (SPARK=3.5 for one; AREA=sink for some)
	@$(GUARDED) $(PYTHON) -m tools.test_versions $(SPARK) $(AREA:%=--area %)

test-airflow-versions: setup ## Test on Airflow 3.1, 3.2 and 3.3, into docs/compatibility.md; AIRFLOW=3.1 for one
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.versions airflow $(AIRFLOW) $(AREA:%=--area %)

test-kafka-versions: setup ## Translate positions between Kafka 2.8, 3.9 and 4.3, into docs/compatibility.md
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.versions kafka

test-kafka-leaders: setup ## Migrate between clusters of three brokers whose leaders die, into docs/compatibility.md (5 minutes)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.versions leaders

test-python-versions: setup ## Run the tests without a JVM on each Python found (PYTHONS="/path/to/python3.13 ...")
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.versions python $(PYTHONS)

test-java-versions: setup ## Run the agent's tests with drivers on each Java named (JAVAS="/usr/lib/jvm/java-21 ..."; 8 and 11 on Spark 3.5)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.versions java $(JAVAS)

test-clusters: setup ## Run every deployment through one contract, on real daemons, into docs/deployments.md; PLACES=yarn for one
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.clusters $(PLACES)

test-kubernetes: setup ## The same on a real Kubernetes of one node, which is built once (as root on Debian); AGAIN=words for some tests
	@$(PYTHON) -m tools.kubernetes
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.clusters kubernetes spark-application $(if $(AGAIN),--again "$(AGAIN)")

fuzz: setup ## Give bad bytes to everything that parses, guided by coverage (FUZZ_SECONDS=600)
	@$(AIRFLOW_BIN)/python -m tools.fuzz --seconds $(or $(FUZZ_SECONDS),600)

demo: setup ## Migrate a stateful job between two Kafka clusters, for real, and judge it
	@$(GUARDED) $(AIRFLOW_BIN)/python -m demo

demo-ui: setup ## The same, approved by you in Airflow's UI, which stays open
	@$(GUARDED) $(AIRFLOW_BIN)/python -m demo --ui

demo-kafka: setup ## A Kafka broker with numbered records, for docs/adopt-a-job.md; it stays open
	@$(GUARDED) $(AIRFLOW_BIN)/python -m demo.numbers

tutorial: setup ## Run every command of docs/tutorial.md and docs/adopt-a-job.md and compare what it shows (10 minutes)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q tests/tutorial

docs: setup ## Build the documentation as a site, warnings being errors; open .flinkstyle/site/index.html
	@$(PYTHON) -m tools.site

bench: setup ## Measure against others and write docs/benchmarks.md; BENCH=name for one, QUICK=1 to try
	@$(PYTHON) -m tools.bench
	@$(GUARDED) $(AIRFLOW_BIN)/python -m benchmarks $(BENCH) $(if $(QUICK),--quick)

soak: setup ## Jobs under load, judged (SOAK=hot, cycles, crashes, or faults: an hour of everything failing, MINUTES=n; SEED=n)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m testbed.soak $(SOAK) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

chaos: setup ## Kill everything around the transactional sink 300 times and count what it wrote; KILLS=n, SEED=n, AWAY=1: freeze the broker
	@$(GUARDED) $(AIRFLOW_BIN)/python -m testbed.chaos $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(if $(AWAY),--away)

kills: setup ## kill -9 the driver that runs, or the next one, at each phase of upgrades and migrations (40 minutes)
	@FLINKSTYLE_KILLS=all $(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q tests/e2e/test_cutover_kills.py tests/e2e/test_kills.py

errors: setup ## Write into docs/operating.md which failures are final and why, as the code has it
	@$(AIRFLOW_BIN)/python -m tools.errors

interference: setup ## Mark, clear, delete, pause, time out and kill, at phases of migrations and upgrades in a real Airflow (40 minutes; RUNS=30 SEED=1 MINUTES=n)
	@FLINKSTYLE_INTERFERENCE=$(or $(RUNS),30) SEED=$(or $(SEED),1) $(if $(MINUTES),MINUTES=$(MINUTES)) $(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q -s -m nightly --timeout 0 tests/e2e/test_interference.py

faults: setup ## Take, stop, relaunch and migrate while S3 stalls, cuts, throttles, answers late (RUNS=1000 SEED=1 LANES=4)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tests.bad_minutes --runs $(or $(RUNS),1000) $(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes $(LANES))

mutants: setup ## Change what must not be wrong, a place at a time, and see that a unit test fails; MODULE=name
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tools.mutants $(MODULE)

test-page: setup ## Click whole stories through on the Savepoints page, in Chromium, with a real job on real Kafka (15 minutes)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q tests/page

pictures: setup ## Take the pictures of docs/page.md anew, from a real Airflow in Chromium
	@PAGE_PICTURES=docs $(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q tests/integration/test_page.py::test_admin_triggers_a_dag_with_the_fields_filled_in tests/page/test_stories.py

test-dashboard: setup ## Ask a real Prometheus every query of dashboards/grafana.json; PROMETHEUS=/path/to/prometheus (version 3)
	@PROMETHEUS="$(PROMETHEUS)" $(GUARDED) $(AIRFLOW_BIN)/python -m pytest -q tests/dashboard

page-load: setup ## 200 viewers of the Savepoints page, 100 jobs, 10,000 savepoints: answers and requests to the store
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tests.integration.page_load

hung-store: setup ## 60 browsers and 1,000 deferred tasks beside a store that never answers: how others fare (ten minutes)
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tests.integration.hung_store --part page --part triggers
	@$(GUARDED) $(AIRFLOW_BIN)/python -m tests.integration.hung_store --part idle

histories: setup ## Judge random histories of a job by an oracle, 10,000 or N=n; SEED=n (no JVM; 100,000 in about ten minutes)
	@PYTHONHASHSEED=0 $(GUARDED) $(AIRFLOW_BIN)/python -m testbed.histories $(if $(N),--histories $(N)) $(if $(SEED),--seed $(SEED))

every-error: setup ## Let a whole job meet every error of stores, Kafka, Spark and clusters in every phase, or N=n of them; SEED=n (no JVM)
	@PYTHONHASHSEED=0 $(GUARDED) $(AIRFLOW_BIN)/python -m testbed.histories.every_error $(if $(N),--jobs $(N)) $(if $(SEED),--seed $(SEED))

worlds: setup ## Judge the proof of positions by random worlds, 100,000 or N=n; SEED=n
	@$(GUARDED) $(AIRFLOW_BIN)/python -m testbed.worlds $(if $(N),--worlds $(N)) $(if $(SEED),--seed $(SEED))

differential: setup ## Run random scripts plainly and under the agent, and compare (N=500 SEED=1; LANES=2)
	@$(GUARDED) .flinkstyle/venv-spark/bin/python -m testbed.differential --count $(or $(N),50) $(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes $(LANES))

dist: ## Build the wheel and the source distribution, the same bytes each time, into .flinkstyle/dist
	@mkdir -p "$(TMPDIR)"
	@$(PYTHON) -m tools.dist

lock: setup ## Resolve the lock files anew (needs the network)
	@$(PYTHON) -m tools.lock

clean: ## Remove everything set-up, demo and tests made
	rm -rf .flinkstyle
