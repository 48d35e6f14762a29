#!/usr/bin/env bash
# Tests the integration of TRL on releases of it, each in an environment of its own.
#
#   scripts/test_trl_releases.sh               every release that is admitted
#   scripts/test_trl_releases.sh 1.0.0 1.16.0  these
#
# The environments share what is not TRL (.venv-trl/base) and are kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

base="$PWD/.venv-trl/base"
python3 -m venv "$base"
"$base/bin/pip" install -q -c constraints-trl.txt -e '.[train,lora,hub]' hypothesis pytest requests

admitted() {
    "$base/bin/pip" index versions trl 2>/dev/null | "$base/bin/python" -c '
import re, runpy, sys
releases = runpy.run_path("src/rollwise/integrations/trl/releases.py")
found = re.search("Available versions: (.*)", sys.stdin.read())[1].split(", ")
print(*reversed([release for release in found if releases["is_tested"](release)]))'
}

failed=()
for release in ${*:-$(admitted)}; do
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
