# One environment for everything: `make setup` builds .venv and fetches ComfyUI; all other targets use it.
# COMFYUI_PATH=/path/to/ComfyUI uses a ComfyUI that you have, CHECKPOINT=/path/to/model.safetensors your model.

PYTHON ?= python3
VENV := $(if $(PACELINE_VENV),$(PACELINE_VENV),.venv)
VENV_PYTHON := $(VENV)/bin/python
PYTEST_ARGS ?=
# A process of tests takes up to 3 GB, with the servers that it starts; one core stays for those and the browser.
TEST_PROCESSES ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 4 ? 2 : 3)))
PYTEST = $(VENV_PYTHON) -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --rerun-show-tracebacks --durations=40
TRUST_MINUTES ?= 180
SOAK_MINUTES ?= 30
PACKS_COUNT ?= 300
CACHE := $(if $(PACELINE_CACHE),$(PACELINE_CACHE),.cache)
AUDIT := $(CACHE)/audit
AUDIT_ARGS ?=
PEERS := $(CACHE)/peers
DEMO_ARGS ?=
BENCH_ARGS ?= --quick
# The browser tests that take pictures on their way; with PACELINE_PICTURES they measure longer, as others do not expect.
PICTURES := test_compare.py::test_the_graph_shows_what_was_done_and_what_it_was_worth \
	test_faster.py::test_one_click_with_a_trained_model \
	test_nodes.py::test_nodes_and_their_help_speak_the_language_of_the_frontend[en] \
	test_speed.py::test_a_profile_is_shown_in_the_node_and_in_the_tab \
	test_templates.py::test_a_template_opens

# Tests start about forty Pythons; without bytecode on disk each of them would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE
export BROWSER COMFYUI_PATH COMFYUI_VERSION CHECKPOINT PACELINE_VENV PACELINE_CACHE
# Threads that wait for a core sleep; tests/conftest.py says the same to tests. Benchmarks are left as torch has it.
demo trust peers soak: export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-newest quick texts trust peers soak lint audit archive pictures screenshots bench gpu-results results clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## build the environment and fetch ComfyUI (repairs what is broken; BROWSER=1: with a Chromium)
	@$(PYTHON) tools/setup_env.py

demo: setup ## make a workflow faster in a real ComfyUI, and show what that is worth on one page (CHECKPOINT=... for your model)
	@$(VENV_PYTHON) tools/demo/run_demo.py $(DEMO_ARGS)

test: setup ## run the tests that every change must pass (PYTEST_ARGS="-k name -x" to choose, TEST_PROCESSES=1 for one by one)
	@$(PYTEST) -m "not thorough" $(PYTEST_ARGS)

test-all screenshots: export PACELINE_SCREENSHOTS = 1
test-all: setup ## run those and the thorough ones, which CI runs each night
	@$(PYTEST) $(PYTEST_ARGS)

test-newest: ## run them with the newest torch, frontend and, in COMFYUI_PATH, ComfyUI, in an environment of their own
	@PACELINE_NEWEST=1 PACELINE_VENV="$(CACHE)/newest/venv" PACELINE_CACHE="$(CACHE)/newest" $(MAKE) test

quick: setup ## run the tests of the techniques alone: no ComfyUI, no pipelines, no generated code
	@$(PYTEST) -m "not thorough and not slow" --ignore-glob="*/test_diffusers_*" tests/unit $(PYTEST_ARGS)

texts: setup ## write the texts that people read anew, tests/texts.json, after words were changed
	@$(VENV_PYTHON) -m pytest -q --write-texts tests/unit tests/comfyui

trust: setup ## try random graphs, bad input, faults and many clients, and write docs/TRUST.md (TRUST_MINUTES=180)
	@$(VENV_PYTHON) tests/trust/run_all.py --minutes $(TRUST_MINUTES)

soak: setup ## let many clients use one server at once (SOAK_MINUTES=30)
	@$(VENV_PYTHON) tests/trust/run_all.py --only soak --show --minutes $(SOAK_MINUTES)

peers: setup ## draw random graphs beside other packs (PACKS=/folder/of/clones), and run diffusers' own tests with ours on its models (DIFFUSERS=/checkout)
	@test -n "$(PACKS)$(DIFFUSERS)" || { echo "Name PACKS=/folder/of/clones, DIFFUSERS=/path/to/a/checkout, or both."; exit 2; }
	@test -z "$(PACKS)" || $(VENV_PYTHON) tests/trust/run_all.py --only packs --minutes 1000 --count $(PACKS_COUNT) --packs $(wildcard $(PACKS)/*)
	@test -z "$(DIFFUSERS)" || $(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target "$(PEERS)" parameterized requests-mock
	@test -z "$(DIFFUSERS)" || PYTHONPATH="$(PEERS)" $(VENV_PYTHON) tests/trust/peers/run_peers.py --diffusers "$(DIFFUSERS)"

lint: setup ## check the style, the types, the layers, and that no name is given and no weights are committed twice
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m mypy
	@$(VENV_PYTHON) tools/check_layers.py
	@$(VENV_PYTHON) tools/check_names.py
	@$(VENV_PYTHON) tools/check_weights.py

audit: setup ## look for unsafe code (bandit) and for packages with known holes (pip-audit); both stay out of .venv
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --target "$(AUDIT)" bandit pip-audit
	@PYTHONPATH="$(AUDIT)" $(VENV_PYTHON) -m bandit --quiet -c pyproject.toml -r optimizers measure service nodes scripts __init__.py __main__.py
	@PYTHONPATH="$(AUDIT)" $(VENV_PYTHON) -m bandit --quiet -c pyproject.toml --skip B101,B404,B603,B607 -r tools tests/comfy_host tests/diffusers_host benchmarks
	@PYTHONPATH="$(AUDIT)" $(VENV_PYTHON) -m pip_audit --local --progress-spinner off $(AUDIT_ARGS)

archive: setup ## build node.zip, what the Comfy Registry serves of the tracked files, with the registry's own tool
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --target "$(CACHE)/comfy-cli" comfy-cli==1.23.0
	@DO_NOT_TRACK=1 PYTHONPATH="$(CACHE)/comfy-cli" $(VENV_PYTHON) -m comfy_cli --skip-prompt --no-enable-telemetry node pack

pictures: setup ## take the screenshots of README, help pages and example workflows anew (nothing else should run meanwhile)
	@PACELINE_PICTURES=1 CI=1 $(VENV_PYTHON) -m pytest -q $(PICTURES:%='tests/browser/%')

screenshots: setup ## take screenshots of all that the tests of the page show, in all palettes: tests/artifacts/index.html
	@CI=1 $(VENV_PYTHON) -m pytest -q tests/browser

bench: setup ## run every benchmark (BENCH_ARGS="" for the full length)
	@set -e; for file in benchmarks/*.py; do \
		echo "== $$file"; $(VENV_PYTHON) "$$file" $(BENCH_ARGS); \
	done; \
	for part in "step_caches.py --only icons-lumina" "step_caches.py --only icons-video" "peers.py --only int8" "peers.py --only transformer" "peers.py --only video"; do \
		echo "== $$part"; $(VENV_PYTHON) benchmarks/$$part $(BENCH_ARGS); \
	done

gpu-results: setup ## measure everything on this NVIDIA GPU, about two hours, and name the one file to send us
	@PYTHON="$(VENV_PYTHON)" benchmarks/on_gpu.sh --all

results: setup ## write benchmarks/RESULTS.md and docs/expected.md from the JSON in benchmarks/results
	@$(VENV_PYTHON) benchmarks/pages/render_results.py
	@$(VENV_PYTHON) benchmarks/pages/expected.py

clean: ## delete the environment, the fetched ComfyUI and everything generated
	rm -rf "$(VENV)" "$(CACHE)" \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis tools/demo/output tests/artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
