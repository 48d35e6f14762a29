#!/usr/bin/env bash
# Builds wheel and sdist, installs each into an environment of its own, and runs the main job there,
# outside of the repository: train, evaluate, report.
#
#   scripts/test_package.sh                what rollwise needs is taken from .venv
#   scripts/test_package.sh train hub ...  then each of these extras too, with all that it needs installed anew;
#                                          `hub,lora` goes into one environment
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/build"
"$work/build/bin/pip" install -q build
"$work/build/bin/python" -m build -q --outdir "$work/dist" .
shared=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

core() { # of an environment: what needs NumPy alone
    cp examples/loop.py "$work"
    (cd "$work" && "$1/bin/python" loop.py >loop.txt && "$1/bin/rollwise" --version)
    (cd "$work" && "$1/bin/python" -c "import rollwise; assert rollwise.__file__.startswith('$1')")
}

job() {
    rm -rf "$work/job" && mkdir "$work/job"
    local tiny=(--data.problems 16 --engine.max_new_tokens 16)
    (
        cd "$work/job" &&
        "$1/bin/rollwise" train --output run --steps 2 --prompts.batch_size 2 \
            --evaluation.problems 4 --evaluation.samples 1 "${tiny[@]}" &&
        "$1/bin/rollwise" evaluate --model.path run --output evaluation --samples 2 "${tiny[@]}" \
            --benchmarks running-sums &&
            "$1/bin/rollwise" report run &&
        test -s run/report.html && test -s evaluation/report.html
    ) >"$work/shown" 2>&1 || { cat "$work/shown" && return 1; }
}

for package in "$work"/dist/*; do
    environment="$work/$(basename "$package")-env"
    "$python" -m venv "$environment"
    "$environment/bin/pip" install -q --no-deps "$package"
    own=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$shared')" >"$own/shared.pth"
    core "$environment"
    job "$environment"
    echo "$(basename "$package"): trained, evaluated and reported"
done

for extra in "$@"; do
    environment="$work/$extra"
    "$python" -m venv "$environment"
    case $extra in
    core) needs="" ;;
    train | verl) needs="[$extra]" ;;
    *) needs="[train,$extra]" ;;
    esac
    constraints=constraints-$extra.txt
    [[ -e $constraints ]] || constraints=constraints.txt
    "$environment/bin/pip" install -q -c "$constraints" "$(echo "$work"/dist/*.whl)$needs"
    core "$environment"
    [[ $extra == core ]] || job "$environment"
    echo "rollwise$needs: done"
    rm -rf "$environment"
done
