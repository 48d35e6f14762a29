#!/usr/bin/env bash
# Tests the integration of TRL on the release that is admitted, or on those named, each in an environment of its own.
#
#   scripts/test_trl_releases.sh [RELEASE ...]
#
# The environments share what is not TRL (.venv-trl/base) and are kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

base="$PWD/.venv-trl/base"
python3 -m venv "$base"
"$base/bin/pip" install -q -c constraints-trl.txt -e '.[train,lora,hub]' hypothesis pytest

failed=()
for release in ${*:-1.16.0}; do
    environment="$PWD/.venv-trl/$release"
    python3 -m venv "$environment"
    shared=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$shared')" >"$own/base.pth"
    "$environment/bin/pip" install -q -c constraints-trl.txt "trl==$release"
    echo "trl $release"
    "$environment/bin/python" -m pytest -q -m trl tests/integrations || failed+=("$release")
done
if ((${#failed[@]})); then
    echo "failed on trl ${failed[*]}" >&2
    exit 1
fi
