#!/usr/bin/env bash
# Builds wheel and sdist, and uses the wheel as someone without a clone does: in an empty environment, with the newest
# releases of all that it needs and no constraints, outside of the repository. Says how long installing took, how large
# the result is, and which releases are in it.
#
#   scripts/test_package.sh                the extra `train`
#   scripts/test_package.sh hub,lora trl   then each of these too, in an environment of its own
#
# Torch alone is the release that constraints.txt names: the newest may bring several gigabytes for GPUs.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/build"
"$work/build/bin/pip" install -q build
"$work/build/bin/python" -m build -q --outdir "$work/dist" .
wheel=$(echo "$work"/dist/*.whl)
torch=$(grep '^torch==' constraints.txt)

install() { # into a new environment: what, with which extras
    "$python" -m venv "$1"
    [[ $2 == core ]] || "$1/bin/pip" install -q --no-compile "$torch"
    local needs="[$2]" began=$SECONDS
    [[ $2 == core ]] && needs=""
    "$1/bin/pip" install -q --no-compile "$wheel$needs"
    echo "rollwise$needs: $(du -h "$wheel" | cut -f1)B, installed in $((SECONDS - began)) s without torch," \
        "$(du -sh "$1" | cut -f1)B with everything"
    "$1/bin/pip" list --format freeze --exclude pip --exclude setuptools | paste -sd' ' | fold -sw 120
}

core() { # of an environment: what needs NumPy alone
    (cd "$work" && "$1/bin/rollwise" --version && "$1/bin/python" "$("$1/bin/python" -c "
import rollwise, pathlib
assert rollwise.__file__.startswith('$1')
print(pathlib.Path(rollwise.__file__).parent / 'share/examples/loop.py')")" >loop.txt)
}

job() { # of an environment: train, a plug-in, evaluate, report, doctor
    rm -rf "$work/job" && mkdir "$work/job"
    local rollwise="$1/bin/rollwise" tiny=(--data.problems 16 --engine.max_new_tokens 16)
    local small=("${tiny[@]}" --prompts.batch_size 8 --evaluation.problems 4 --evaluation.samples 1)
    (
        cd "$work/job"
        cat >mine.py <<'PLUGIN'
from dataclasses import dataclass

import rollwise as rw


@dataclass(frozen=True)
class Enough(rw.ExitRule):
    correct: int = 1

    def satisfied(self, positives, negatives):
        return positives >= self.correct
PLUGIN
        "$rollwise" train --steps 3 --output run "${small[@]}"
        "$rollwise" train --steps 3 --output plugin "${small[@]}" --exit.type mine:Enough --exit.correct 2
        grep -q 'mine:Enough' plugin/config.json
        "$rollwise" evaluate --model.path run --output evaluation --samples 2 "${tiny[@]}" --benchmarks running-sums
        "$rollwise" report run
        "$rollwise" doctor | tee doctor.txt
        test -e "$(grep -A1 'docs/ and examples/' doctor.txt | tail -1 | xargs)/docs/settings.md"
        test -s run/report.html && test -s evaluation/report.html
    ) >"$work/shown" 2>&1 || { cat "$work/shown" && return 1; }
}

# The sdist makes the same wheel.
"$work/build/bin/pip" wheel -q --no-deps --wheel-dir "$work/again" "$work"/dist/*.tar.gz
"$python" - "$wheel" "$work"/again/*.whl <<'PYTHON'
import sys
import zipfile

built, again = (set(zipfile.ZipFile(path).namelist()) for path in sys.argv[1:])
assert built == again, f"only in one of wheel and sdist: {sorted(built ^ again)}"
PYTHON

environment="$work/train"
install "$environment" train
core "$environment"
job "$environment"
# What messages tell people to type, for another extra, in an environment that has the wheel.
"$environment/bin/pip" install -q 'rollwise[lora]'
"$environment/bin/python" -c 'import peft'
echo "rollwise[train]: trained, with a plug-in too, evaluated and reported"
rm -rf "$environment"

for extra in "$@"; do
    environment="$work/$extra"
    case $extra in
    core | train | verl) install "$environment" "$extra" ;;
    *) install "$environment" "train,$extra" ;;
    esac
    core "$environment"
    [[ $extra == core ]] || job "$environment"
    echo "$extra: done"
    rm -rf "$environment"
done
