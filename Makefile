BIN ?= .venv/bin

.PHONY: check test format

check: ## formatting, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: ## the fast tests
	$(BIN)/python -m pytest -m "not slow"

format: ## mend formatting and what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
