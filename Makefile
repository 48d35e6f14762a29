BIN ?= .venv/bin

.PHONY: check test docs format audit

check: ## formatting, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: ## the fast tests
	$(BIN)/python -m pytest -m "not slow"

docs: ## the documentation site, in build/site, with every link checked
	$(BIN)/python scripts/build_site.py

format: ## mend formatting and what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

audit: ## known vulnerabilities of the pinned packages
	python3 -m venv .venv-audit
	if .venv-audit/bin/pip install -q pip-audit; then .venv-audit/bin/python scripts/audit.py; \
	else echo "not audited: pip-audit cannot be installed here"; fi
