#!/usr/bin/env bash
# The fault suite: whatever dies or is damaged, nothing is lost. A table says how often each was tried.
#
#   scripts/test_faults.sh [TIMES] [SEED] [options of pytest]
#
# TIMES: how often each fault is tried (50). SEED: of all that is random (a random one, printed).
# The folders are in memory where the system has a place for that, because runs sync hundreds of files to the disk.
set -euo pipefail
cd "$(dirname "$0")/.."

export FAULTS_TIMES=${1:-50} FAULTS_SEED=${2:-$RANDOM} OMP_NUM_THREADS=1
shift $(($# < 2 ? $# : 2))
folders=$(mktemp -d -p "$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" faults.XXXXXX)
trap 'rm -rf "$folders"' EXIT
"${PYTHON:-.venv/bin/python}" -m pytest -m faults tests/faults --basetemp "$folders/trials" "$@"
