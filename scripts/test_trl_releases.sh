#!/usr/bin/env bash
# Tests the integration of TRL on the release that is admitted, or on those named, each in an environment of its own.
#
#   scripts/test_trl_releases.sh [RELEASE ...]
#
# The environments are kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
for release in ${*:-1.16.0}; do
    environment=".venv-trl/$release"
    scripts/environment.sh "$environment" -c constraints-trl.txt -e '.[train,lora,hub,server]' "trl==$release" requests hypothesis pytest
    echo "trl $release"
    "$environment/bin/python" -m pytest -q -m trl tests/integrations || failed+=("$release")
done
if ((${#failed[@]})); then
    echo "failed on trl ${failed[*]}" >&2
    exit 1
fi
