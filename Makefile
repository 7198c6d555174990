# Two commands are meant for people: `make demo` and `make test`. Both make .venv first, on a bare machine with Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SAMPLE := samples/gpt2_b8/snapshot.pickle.xz

.PHONY: demo test test-browser lint types unit bench gpu-check format clean

demo: $(VENV)/installed
	@rm -rf demo && mkdir demo
	$(BIN)/tracekit analyze $(SAMPLE) -o demo/gpt2_b8.tracekit
	@echo
	@echo "The dataset is in demo/gpt2_b8.tracekit; ask it anything:"
	@echo "  $(BIN)/tracekit sql demo/gpt2_b8.tracekit \"from ledger where moment = 'peak'\""
	@echo "The same as a page, which needs no network:"
	@echo "  demo/gpt2_b8.tracekit/report.html"

test: lint types unit

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/basedpyright

unit: $(VENV)/installed-dev
	$(BIN)/pytest -m "not browser"

# what needs a browser: Debian's Chromium, installed where it is missing and may be
test-browser: $(VENV)/installed-dev
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
		|| { apt-get update -qq && apt-get install -qq -y chromium >/dev/null; } \
		|| { echo "install Chromium first: apt-get install chromium"; exit 1; }
	TRACEKIT_BROWSER_REQUIRED=1 $(BIN)/pytest -m browser

bench: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.analyze
	$(BIN)/python -m benchmarks.scores
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.estimates
	$(BIN)/python -m benchmarks.traced
	$(BIN)/python -m benchmarks.fit

gpu-check: $(VENV)/installed
	$(BIN)/python capture/gpu_check.py -o gpu_check

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/installed-dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) demo dist build .pytest_cache .ruff_cache .hypothesis
