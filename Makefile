# Twolane. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
CLIENTS_VENV ?= .venv-clients
SERVERS_VENV := .venv-mcp-servers
MODELS_VENV := .venv-model-servers
SITE_VENV := .venv-docs
RELEASE_VENV := .venv-release
DEPLOY_VENV := .venv-deploy
DIST   ?= dist
BILLS  ?= base mcp
ENVIRONMENTS ?= build/environments
SERVERS := tests/mcp_servers/node/node_modules
CLAUDE := tests/clients/claude_code/node_modules
AXE := tests/console/node/node_modules
NEWEST := tests/servers/postgres/node_modules
ARGS   ?=
ONLY   ?=

PY  := $(VENV)/bin/python
# Not compiled: most modules are never imported, and the others are compiled when they are.
PIP  = -m pip --disable-pip-version-check $(if $1,--python $1) install --quiet --no-compile --require-hashes

# Bytecode is kept, whatever the shell says: without it every start compiles everything.
export PYTHONDONTWRITEBYTECODE :=

# More processes than cores: a test waits as long as it works.
JOBS   ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 4)))
EVERYWHERE := not clients and not soak and not soak_judge and not judged and not crash and not postgres and not valkey and not prometheus and not mcp_servers and not servers and not wheel and not browser and not deploy
FAST   := $(addprefix tests/,config contracts dialects http plugin plugins/assessors plugins/stages text tools test_architecture.py test_docs.py test_plugin_independence.py test_errors.py test_sentences.py)

.DEFAULT_GOAL := help
.PHONY: help run demo demo-words test test-fast test-postgres test-valkey test-prometheus test-clients test-clients-all test-judged test-mcp test-servers test-browser test-deploy test-wheel mcp-conformance soak soak-judge crash check fmt selftest bench bench-growth request-calls docs site lock release clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/bin/gateway ## serve on 127.0.0.1:8080 (ARGS="--port 9000 --upstream https://api.openai.com/v1")
	@exec $(PY) -m gateway run $(ARGS)

demo: $(VENV)/bin/gateway ## ten steps against a running gateway with the demo model (no key, no network)
	@$(PY) -m gateway.testing.tour

demo-words: $(VENV)/.run ## print the words that the demo model obeys
	@$(PY) -m gateway.demo --words

test: $(VENV)/.dev ## run the tests (JOBS=6 processes; ARGS="tests/http -k name" for some of them)
	$(PY) -m pytest -n $(JOBS) --dist each -m "$(EVERYWHERE)$(if $(ONLY), and $(ONLY))" $(ARGS)

test-fast: $(VENV)/.dev ## those that start no gateway: parsers, judges, configuration, stages
	$(PY) -m pytest -n auto --dist each -m "$(EVERYWHERE)" $(FAST) $(ARGS)

test-postgres: $(VENV)/.dev $(NEWEST)/.installed ## the tests that start a PostgreSQL server (Debian: apt-get install postgresql pgbouncer)
	$(PY) -m pytest -m postgres $(addprefix tests/,cli deploy e2e judged plugins/stores/postgresql plugins/tools/execute_sql) $(ARGS)

test-valkey: $(VENV)/.dev ## the tests that start a Valkey or Redis server (Debian: apt-get install valkey-server or redis-server)
	$(PY) -m pytest -m valkey $(addprefix tests/,cli/doctor faults limits) $(ARGS)

test-prometheus: $(VENV)/.dev ## a bad night that a real Prometheus watches, and the alerts (Debian: apt-get install prometheus)
	$(PY) -m pytest -m prometheus tests/deploy $(ARGS)

test-judged: $(VENV)/.dev ## run for real what the judges call harmless, and confined what they do not, 19,000 times
	$(PY) -m pytest -n auto -m judged $(addprefix tests/,judged plugins/assessors plugins/tools) $(ARGS)

test-clients: $(CLIENTS_VENV)/.clients $(CLIENTS_VENV)-instructor/.clients tests/clients/node/node_modules/.installed $(CLAUDE)/.installed ## run the README's snippets with real clients
	$(CLIENTS_VENV)/bin/python -m pytest -n 2 --dist loadfile -m "clients and not clients_all" tests/clients $(ARGS)

test-clients-all: $(CLIENTS_VENV)/.clients $(CLIENTS_VENV)-instructor/.clients $(CLIENTS_VENV)-all/.clients $(CLIENTS_VENV)-aider/.clients tests/clients/node/node_modules/.installed tests/clients/programs/node_modules/.installed $(CLAUDE)/.installed ## the same with every client (about 3 GB)
	$(CLIENTS_VENV)/bin/python -m pytest -m clients tests/clients $(ARGS)

test-mcp: $(VENV)/.dev $(SERVERS_VENV)/.servers $(SERVERS_VENV)-old/.servers $(SERVERS)/.installed ## with real MCP servers, and the protocol's conformance suite
	$(PY) -m pytest -m mcp_servers tests/mcp_servers $(ARGS)

test-servers: $(VENV)/.dev $(MODELS_VENV)/.servers ## with real model servers, which answer without a model
	$(PY) -m pytest -m servers tests/model_servers $(ARGS)

test-browser: $(VENV)/.dev $(AXE)/.installed ## open pages in a real browser (Debian: apt-get install chromium fonts-noto-cjk)
	$(PY) -m pytest -n 2 -m browser tests/console $(ARGS)

test-deploy: $(VENV)/.dev $(DEPLOY_VENV)/.deploy ## check deploy/ with hadolint, Helm, the schemas of Kubernetes, systemd and nginx (Debian: apt-get install nginx systemd)
	$(PY) -m pytest -m deploy tests/deploy $(ARGS)

test-wheel: $(VENV)/.dev $(RELEASE_VENV)/.release ## build a release and start a gateway from its wheel in an environment of its own
	$(PY) -m pytest -m wheel tests/deploy/test_wheel.py $(ARGS)

mcp-conformance: $(VENV)/.dev $(SERVERS)/.installed ## only the conformance suite, scenario by scenario
	$(PY) -m pytest -m mcp_servers -vv tests/mcp_servers/test_conformance.py tests/mcp_servers/test_conformance_server.py $(ARGS)

soak: $(VENV)/.dev ## reliability under load and faults; prints the figures (about ten minutes)
	$(PY) -m pytest -m soak -s $(ARGS)
	TWOLANE_FUZZ=$${TWOLANE_FUZZ:-50} $(PY) -m pytest tests/http/test_differential.py
	$(PY) -m pytest -n $(JOBS) -m "hypothesis and $(EVERYWHERE)" --hypothesis-profile soak

soak-judge: $(VENV)/.dev $(NEWEST)/.installed ## the same 1,400,000 times (needs PostgreSQL; about an hour)
	$(PY) -m pytest -m soak_judge -s $(ARGS)

crash: $(VENV)/.dev ## kill gateways at 200 points of a run, 660 runs under faults, 200 disks that fail, 500 faults of the store at every door, 10,000 decisions at once (about three quarters of an hour)
	$(PY) -m pytest -m crash -s tests/crash $(ARGS)

check: $(VENV)/.dev site ## lint, types, formatting, shipped configuration, generated files, the documentation site
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PY) -m pytest -q tests/test_names.py
	$(PY) -m gateway check-config -c gateway.yaml
	$(PY) -m gateway.cli.reference --check
	$(PY) -m gateway.api.openapi.document --check
	$(PY) -m tests.model_servers.page --check

fmt: $(VENV)/.dev ## format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

selftest: $(VENV)/.run ## prove on this machine that passthrough is unchanged
	@$(PY) -m gateway selftest

request-calls: $(VENV)/.dev ## write down the calls of functions that a request costs (tests/data/request_calls.yaml)
	$(PY) -m tests.request_calls

bench: $(VENV)/.run ## cost per request beside nginx where it is installed (ARGS="--quick")
	$(PY) -m bench.run $(ARGS)

bench-growth: $(VENV)/.run ## what grows: store, traffic, runs, requests, responses, mcp, console (ARGS="--quick", ARGS="--subjects runs"; bench/README.md)
	$(PY) -m bench.growth $(ARGS)

docs: $(VENV)/.dev ## write the generated pages (docs/configuration.md, gateway.schema.json, docs/api.md, docs/model-servers.md)
	$(PY) -m gateway.cli.reference
	$(PY) -m gateway.api.openapi.document
	$(PY) -m tests.model_servers.page

site: $(SITE_VENV)/.site ## build the documentation site into build/site, and check its links
	$(SITE_VENV)/bin/properdocs build --strict --config-file mkdocs.yml
	$(SITE_VENV)/bin/python docs/site/check.py build/site

release: $(RELEASE_VENV)/.release ## build and check what is published into dist/: sdist, wheel, SBOMs, licences, checksums (RELEASING.md)
	rm -f $(DIST)/twolane-* $(DIST)/SHA256SUMS
	$(RELEASE_VENV)/bin/python -m build --no-isolation --outdir $(DIST)
	$(RELEASE_VENV)/bin/twine check --strict $(DIST)/*.tar.gz $(DIST)/*.whl
	$(RELEASE_VENV)/bin/python deploy/release/sbom.py $(DIST) $(ENVIRONMENTS) $(patsubst %,requirements/%.txt,$(BILLS))
	cd $(DIST) && sha256sum twolane-* >SHA256SUMS

lock: ## write the requirements and lock files anew (needs uv and npm)
	$(LOCK) -o requirements/base.txt
	$(LOCK) --extra mcp --extra codings -o requirements/mcp.txt
	$(LOCK) --extra postgres -o requirements/postgres.txt
	$(LOCK) --extra valkey -o requirements/valkey.txt
	$(LOCK) --extra mcp --extra codings --extra tracing -o requirements/tracing.txt
	$(LOCK) --extra dev -o requirements/dev.txt
	$(LOCK) --extra dev --extra clients -o requirements/clients.txt
	$(LOCK) --extra clients-all -o requirements/clients-all.txt
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:instructor -o requirements/clients-instructor.txt
	$(filter-out --universal pyproject.toml,$(LOCK)) --group pyproject.toml:aider -o requirements/clients-aider.txt
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:mcp-servers -o requirements/mcp-servers.txt
	$(filter-out pyproject.toml,$(LOCK)) --no-strip-extras --group pyproject.toml:mcp-servers-old -o requirements/mcp-servers-old.txt # pip takes no hash of `mcp` for `mcp[cli]`
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:model-servers -o requirements/model-servers.txt
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:site -o requirements/docs.txt
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:release -o requirements/release.txt
	$(filter-out pyproject.toml,$(LOCK)) --group pyproject.toml:deploy -o requirements/deploy.txt
	npm run relock --prefix tests/clients/node
	npm run relock --prefix tests/clients/programs
	npm run relock --prefix tests/clients/claude_code
	npm run relock --prefix tests/mcp_servers/node
	npm run relock --prefix tests/console/node
	npm run relock --prefix tests/servers/postgres
LOCK = uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --upgrade pyproject.toml

clean: ## remove environments, caches and build results
	rm -rf $(VENV) $(CLIENTS_VENV) $(CLIENTS_VENV)-all $(CLIENTS_VENV)-instructor $(CLIENTS_VENV)-aider $(SERVERS_VENV) $(SERVERS_VENV)-old $(MODELS_VENV) $(SITE_VENV) $(RELEASE_VENV) $(DEPLOY_VENV) .venv-3.13 tests/*/*/node_modules dist build .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/base.txt | $(VENV)/bin/python
	@echo "Installing what the gateway needs into $(VENV): half a minute or so, this once."
	@$(PY) $(call PIP) -r requirements/base.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt | $(VENV)/bin/python
	$(PY) $(call PIP) -r requirements/dev.txt
	@touch $@ $(VENV)/.run

# The command `gateway` of this checkout.
$(VENV)/bin/gateway: pyproject.toml | $(VENV)/.run
	@echo "Installing the command $@."
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# By the pip of $(VENV): to unpack another takes as long as most packages do. `deploy/release/sbom.py` runs its own.
define environment =
	@echo "Installing $< into $*: a few minutes, this once."
	test -x $*/bin/python || $(PYTHON) -m venv $(if $(filter $(RELEASE_VENV),$*),,--without-pip) $*
	$(PY) $(call PIP,$*/bin/python) -r $<
	@touch $@
endef

.SECONDEXPANSION:
$(CLIENTS_VENV)/.clients $(CLIENTS_VENV)-all/.clients $(CLIENTS_VENV)-instructor/.clients $(CLIENTS_VENV)-aider/.clients: %/.clients: requirements/$$(subst .venv-,,$$*).txt | $(VENV)/bin/python
	$(environment)

$(SITE_VENV)/.site: %/.site: requirements/docs.txt | $(VENV)/bin/python
	$(environment)

$(RELEASE_VENV)/.release: %/.release: requirements/release.txt | $(VENV)/bin/python
	$(environment)

$(DEPLOY_VENV)/.deploy: %/.deploy: requirements/deploy.txt | $(VENV)/bin/python
	$(environment)

$(SERVERS_VENV)/.servers $(SERVERS_VENV)-old/.servers $(MODELS_VENV)/.servers: %/.servers: requirements/$$(subst .venv-,,$$*).txt | $(VENV)/bin/python
	$(environment)

tests/clients/node/node_modules/.installed $(SERVERS)/.installed $(AXE)/.installed: %/node_modules/.installed: %/package-lock.json
	npm ci --prefix $* --no-audit --no-fund --silent --ignore-scripts
	@touch $@

# With its script, which links the server's libraries.
$(NEWEST)/.installed: %/node_modules/.installed: %/package-lock.json
	npm ci --prefix $* --no-audit --no-fund --silent
	@touch $@

# Not `npm ci`: programs name packages for other systems that not every registry carries. Claude Code needs its script.
tests/clients/programs/node_modules/.installed $(CLAUDE)/.installed: %/node_modules/.installed: %/package-lock.json
	npm install --no-save --prefix $* --no-audit --no-fund --silent
	@touch $@
