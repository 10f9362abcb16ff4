# make demo   a fresh machine: virtual environment, install, convert the shipped clip, print where the result is
# make test   everything `make demo` needs plus the test tools, then the whole test suite
# make check  style, types, architecture and the fast tests: what to run before a commit

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check check-style install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing v2m4 and what it needs into $(VENV), this takes a few minutes ..."
	$(PIP) install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	$(PIP) install --quiet --no-deps mini-dust3r==0.1.2  # with what it needs for a web page it would be 1 GB
	touch $@

tests/export/node_modules: tests/export/package.json
	@if command -v npm >/dev/null; then \
	  cd tests/export && npm install --no-audit --no-fund --no-package-lock --loglevel=error && touch node_modules; \
	else echo "npm is missing: the tests that run the Khronos validator will be skipped"; fi

demo: install
	$(BIN)/v2m4 run examples/data/walker.mp4 -o runs/walker

test: $(VENV)/.installed-dev tests/export/node_modules
	$(BIN)/python -m pytest -n 2 --dist worksteal

check-style: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: check-style tests/export/node_modules
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

clean:
	rm -rf $(VENV) runs build tests/export/node_modules
