# Everything a person or CI runs here. `make help` explains the targets.
# On a fresh machine: root on Linux, Python 3.11+, make, a C compiler and Go; the rest is installed by the first target that needs it.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What a release is told may come from a forge's forms and variables: make would run a $(shell ...) in it, and a quote would end the
# recipe's own.
$(foreach name,BASE SNAPSHOT IMAGE_PREFIX CHART_REPOSITORY PYTHON_INDEX PYTHON_INDEX_CHECK PUBLISH,$(if \
  $(findstring $$,$(value $(name)))$(findstring ',$(value $(name))),$(error $(name) has a $$ or a quote in it)))

UV_VERSION := $(shell sed -n 's/^uv==\([0-9.]*\).*/\1/p' uv.txt)
# A uv of this very version on PATH, else one of our own.
UV := $(if $(findstring $(UV_VERSION),$(shell uv --version 2>/dev/null)),uv,.tools/bin/uv)
# The interpreter is the machine's own; bytecode is compiled at install time, because a pod's first import would pay for it.
export UV_PYTHON := python3
export UV_PYTHON_DOWNLOADS := never
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
RUN := .venv/bin

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.tools/bin/uv:
	@echo "installing uv $(UV_VERSION) into .tools"
	@python3 -m venv .tools || { echo "python3 -m venv does not work here: install your distribution's python3-venv"; exit 1; }
	@.tools/bin/pip install --quiet --require-hashes --requirement uv.txt

.venv/.synced: $(filter .tools/bin/uv,$(UV)) pyproject.toml uv.lock $(wildcard */pyproject.toml)
	@echo "installing the Python packages of uv.lock into .venv (6 GB: torch brings CUDA's libraries)"
	@$(UV) sync --frozen --all-packages --all-groups
	@touch $@

.PHONY: setup
setup: .venv/.synced ## Install the Python environment

.PHONY: tools
tools: setup ## Build Kubernetes, containerd, runc, and what the tests ask, from source into the cache (15 minutes once, on a quiet machine)
	@$(RUN)/oarlock-local build

.PHONY: browser
browser: ## Install Chromium for the tests of pages where there is none (Debian's package, as root)
	@for program in chromium chromium-browser google-chrome; do if command -v $$program >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "tests of pages need Chromium: install your distribution's package, such as chromium"; exit 1; fi; \
	echo "installing Chromium for the tests of pages"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null

.PHONY: demo
demo: setup ## Run the main job on a local three-node Kubernetes: train, crash, resume
	@$(RUN)/python -m oarlock_local.demo

.PHONY: demo-page
demo-page: setup ## Keep such a cluster with a job that trains, open its page, and faults on buttons, until Ctrl-C
	@$(RUN)/python -m oarlock_local.demo --stay

.PHONY: test
test: setup ## Run the quick tier: tests without real nodes, and one on real nodes for each promise of the README
	@tests/run

.PHONY: test-all
test-all: setup ## Run both tiers, for most of an hour; what it took goes into tests/tiers/
	@tests/run --all --record

.PHONY: coverage
coverage: setup ## Run the quick tier, and write which lines of the product nothing but pods reaches into tests/tiers/reached.tsv
	@$(RUN)/python -m tests.tiers.reached

.PHONY: ci
ci: ## What has to pass before a change lands: lint, test, and of the deep tier what the change can break
	@.ci/run

.PHONY: lint
lint: setup ## Check style, types, import rules and generated files
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy $(wildcard */src) tests
	@$(RUN)/lint-imports
	@$(RUN)/python -m oarlock_api.crd --check
	@$(RUN)/python -m oarlock_api.sections --check
	@$(RUN)/python -m oarlock_api.reference --check
	@$(RUN)/python -m oarlock_api.numbers --check
	@$(RUN)/python -m oarlock_operator.process.reference --check
	@$(RUN)/python -m oarlock_trainer.health.reference --check
	@$(RUN)/python -m oarlock_import.page --check
	@$(RUN)/python -m oarlock.cli.page --check
	@$(RUN)/python -m oarlock.explain.page --check
	@$(RUN)/python -m oarlock.glossary_page --check
	@$(RUN)/python docs/pictures/draw.py --check
	@$(RUN)/python -m tests.tiers.promises --check
	@$(UV) lock --check --quiet

.PHONY: format
format: setup ## Format the code and mend what ruff can mend
	@$(RUN)/ruff format .
	@$(RUN)/ruff check --fix .

.PHONY: generate
generate: setup ## Write the CRD, the reference pages and the pictures from their sources
	@$(RUN)/python -m oarlock_api.crd
	@$(RUN)/python -m oarlock_api.sections
	@$(RUN)/python -m oarlock_api.reference
	@$(RUN)/python -m oarlock_api.numbers
	@$(RUN)/python -m oarlock_operator.process.reference
	@$(RUN)/python -m oarlock_trainer.health.reference
	@$(RUN)/python -m oarlock_import.page
	@$(RUN)/python -m oarlock.cli.page
	@$(RUN)/python -m oarlock.explain.page
	@$(RUN)/python -m oarlock.glossary_page
	@$(RUN)/python docs/pictures/draw.py
	@$(RUN)/python -m tests.tiers.promises

.PHONY: page-pictures
page-pictures: setup browser ## Look at the page in Chromium, and copy what the documentation shows of it
	@$(RUN)/python -m pytest -q tests/page/test_views.py
	@cp -v out/page/page-*.png docs/pictures/

.PHONY: docs
docs: setup ## Build the documentation's site into out/site
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict
	@echo "open out/site/index.html"

# What images are built with: the first of these that works here, unless BUILDER names one.
BUILDER = $(firstword $(foreach tool,docker podman buildah,$(if $(shell $(tool) info >/dev/null 2>&1 && echo works),$(tool))))
IMAGE_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' operator/pyproject.toml)
IMAGE_PREFIX := oarlock
# What the images are built on; empty: the Dockerfiles' own, by its tag. For a release by its digest.
BASE :=
# Further arguments of the builds, such as --build-arg TORCH_BACKEND=cpu or --platform (docs/images.md).
IMAGE_OPTIONS :=
IMAGES := operator trainer

.PHONY: images
images: ## Build the operator's and the trainer's image with docker, podman or buildah
	@builder="$(BUILDER)"; [ -n "$$builder" ] || { \
	  echo "no builder of images works here: install docker (and start its daemon), podman or buildah"; exit 1; }; \
	revision=$$(git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null || echo unknown); \
	for image in $(IMAGES); do \
	  $$builder build $(if $(BASE),--build-arg BASE='$(BASE)') $(IMAGE_OPTIONS) --build-arg VERSION=$(IMAGE_VERSION) --build-arg REVISION=$$revision \
	    -f Dockerfile.$$image -t '$(IMAGE_PREFIX)'/$$image:$(IMAGE_VERSION) .; \
	done

# The day whose Debian packages a release takes, from snapshot.debian.org, such as 20260101T000000Z.
SNAPSHOT :=

.PHONY: release-images
release-images: ## Build both images from what never changes: BASE=IMAGE@sha256:..., SNAPSHOT=..., and a clean checkout
	@grep -qE '^[^ @]+@sha256:[0-9a-f]{64}$$' <<<'$(BASE)' || { \
	  echo "BASE=$(BASE) is no digest: a tag is another image tomorrow. Name IMAGE@sha256:... (docker buildx imagetools inspect IMAGE)"; exit 1; }
	@grep -qE '^[0-9]{8}T[0-9]{6}Z$$' <<<'$(SNAPSHOT)' || { \
	  echo "SNAPSHOT=$(SNAPSHOT) is no time of snapshot.debian.org: name one, such as 20260101T000000Z"; exit 1; }
	@[ -z "$$(git status --porcelain)" ] || { echo "the checkout has changes, and the images would have them too: commit them"; exit 1; }
	@$(MAKE) --no-print-directory images IMAGE_OPTIONS='$(IMAGE_OPTIONS) --build-arg SNAPSHOT=$(SNAPSHOT)'

# Where a release's chart and wheels go; the images go to IMAGE_PREFIX. PUBLISH=yes brings them there.
CHART_REPOSITORY :=
PYTHON_INDEX :=
# The same index as pip reads it, https://.../simple/: what it has already is not uploaded again.
PYTHON_INDEX_CHECK :=
PUBLISH :=

.PHONY: release
release: setup ## Build all that a release has into out/release, and tell what it lacks and where it would go: docs/releasing.md
	@$(RUN)/python -m release --uv='$(UV)' --publish='$(PUBLISH)' --builder='$(BUILDER)' --image-prefix='$(IMAGE_PREFIX)' --base='$(BASE)' \
	  --snapshot='$(SNAPSHOT)' --chart-repository='$(CHART_REPOSITORY)' --python-index='$(PYTHON_INDEX)' \
	  --python-index-check='$(PYTHON_INDEX_CHECK)'

.PHONY: version
version: setup ## Check that all places have one version; NEW=0.2.0 writes another one into them
	@$(RUN)/python -m release.versions $(NEW)

.PHONY: images-test
images-test: setup ## Run the images that `make images` built, on a local node
	@OARLOCK_IMAGES_BUILDER=$(BUILDER) OARLOCK_IMAGES_PREFIX='$(IMAGE_PREFIX)' $(RUN)/python -m pytest -v tests/images

# Of gpu-day: a Python that has a torch, instead of `make setup`; a folder with wheels of what it lacks.
PYTHON :=
WHEELS :=

.PHONY: gpu-day
gpu-day: $(if $(PYTHON),,setup) ## Ask this machine's GPUs all that only they can tell, in slices, MINUTES=9 of them, and write a page
	@$(or $(PYTHON),$(RUN)/python) bench/gpu_day.py $(if $(WHEELS),--wheels '$(WHEELS)') \
	  $(if $(findstring command line,$(origin MINUTES)),--minutes $(MINUTES))

.PHONY: argo-test
argo-test: setup ## Run the example's workflow by Argo's own controller, on local nodes (builds it first, for minutes)
	@OARLOCK_ARGO=1 $(RUN)/python -m pytest -v tests/argo

.PHONY: gangs-test
gangs-test: setup ## Place gangs by the programs of Kueue, Volcano and Coscheduling, on local nodes (builds them for many minutes)
	@OARLOCK_GANGS=1 $(RUN)/python -m pytest -v tests/gangs

# The run's seed, by default another each time, and its length.
SEED :=
MINUTES := 5

.PHONY: chaos
chaos: setup ## Two operators and fake nodes with everything that can go wrong, at random: SEED=7 MINUTES=30
	@$(RUN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# How many faults in all; more options: OPTIONS="--nodes 3 --gap 20" (python -m tests.soak --help).
FAULTS := 1000
OPTIONS :=

.PHONY: soak
soak: setup ## A job on real local nodes under faults of all kinds, for hours; its curve must stay that of a calm run: FAULTS=100 SEED=7
	@$(RUN)/python -m tests.soak --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) $(OPTIONS)

# Where the bills of materials are written.
SBOM := out

.PHONY: sbom
sbom: $(filter .tools/bin/uv,$(UV)) ## Write what the images' Python environments hold into out/, as CycloneDX
	@mkdir -p $(SBOM)
	@for part in operator trainer; do \
	  prune=; if [ $$part = trainer ]; then prune="--prune kubernetes"; fi; \
	  $(UV) export --quiet --frozen --no-dev --package oarlock-$$part --all-extras $$prune --format cyclonedx1.5 \
	    --preview-features sbom-export --output-file $(SBOM)/oarlock-$$part.cdx.json >/dev/null; \
	  echo "$(SBOM)/oarlock-$$part.cdx.json"; \
	done

.PHONY: clean
clean: ## Stop every local cluster and remove the environment; the cache of built binaries stays
	@if [ -x $(RUN)/oarlock-local ]; then $(RUN)/oarlock-local down --all; fi
	@rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache
