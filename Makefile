# Recipes only; the work is in scripts/. CI calls the same ones.
.DEFAULT_GOAL := help
.PHONY: help setup jars postgres browser lint types audit test test-fast test-all check simulate chaos soak cluster demo examples pictures bench cost docs site wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with everything, locked versions
	@scripts/setup

jars: setup ## Spark's Kafka connector, a Kafka broker, PostgreSQL's driver, and Spark's classes as a JVM starts soonest with them
	@scripts/jars
	@scripts/class-archive

postgres: ## a PostgreSQL server, for the tests
	@scripts/postgres

browser: ## Chromium, in which the tests look at the page
	@scripts/browser

lint: setup ## ruff: rules and format
	@scripts/lint

types: setup ## mypy, strict, of the package and the benchmarks; pyright of a user's program
	@scripts/types

audit: setup ## known vulnerabilities of the locked versions, where a list of them can be reached
	@scripts/audit

test: setup jars postgres browser ## each rule, connector and promise once: Spark, a real Kafka broker, PostgreSQL, Chromium, kills
	@scripts/test

test-fast: setup ## those of them that need no JVM and no server
	@scripts/test --in-parallel -m "not spark and not kafka and not postgres and not browser and not kill"

test-all: setup jars postgres browser ## all random cases, kills, chaos, simulation, cluster, cost; hours (SEED=number, SLICE=K/12)
	@SEED=$(SEED) SLICE=$(SLICE) scripts/test-all
	@$(if $(SLICE),true,scripts/cost)

check: lint types test-fast docs site ## what to run before a commit

simulate: setup ## 20,000 simulated schedules of crashes, sleeping runs and faults (SCHEDULE=number: that one again; SEED=number: of the run)
	@SCHEDULE=$(SCHEDULE) SEED=$(SEED) scripts/simulate

chaos: setup jars postgres ## real kills: two of each of 1,971 jobs without a JVM, and of whole jobs on Spark
	@scripts/chaos

soak: setup jars postgres ## half an hour of a job of which all is killed (MINUTES=10, SEED=number, ROWS=a second)
	@MINUTES=$(MINUTES) SEED=$(SEED) ROWS=$(ROWS) scripts/soak

cluster: setup ## cases on a cluster, and one whose machines come and go, with only an S3 server in common
	@scripts/cluster

demo: setup ## two live streams joined on Spark, on real data (QUERY=name for another query)
	@.venv/bin/watersmeet demo $(if $(QUERY),--query $(QUERY))

examples: setup ## the examples on Spark, larger, each against its answer, and Nexmark's speed (ROWS=200000, EVENTS=1000000)
	@ROWS=$(ROWS) EVENTS=$(EVENTS) scripts/examples

bench: setup ## the aims, side by side with Spark's own stream-stream join (and Flink's, if there), as one table (ARGS="--quick", "--only 1k")
	@.venv/bin/python -m benchmarks.bars $(ARGS)

cost: setup ## CPU of a million rows, against the baseline (RENEW=reason makes that anew)
	@RENEW="$(RENEW)" scripts/cost

docs: setup ## run the docstrings' examples, check links
	@scripts/docs

site: setup ## the pages as a site, in build/site; links and anchors checked
	@scripts/site

wheel: setup ## the package as a wheel, in dist/
	@.venv/bin/python -m hatchling build -t wheel

pictures: setup browser ## the pictures of docs/users/page.md
	@scripts/pictures

clean: ## remove what the recipes made (not .venv and .jars)
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist metastore_db spark-warehouse derby.log
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
