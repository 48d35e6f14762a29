#!/usr/bin/env bash
# Repeats the tests of the rooms that compute as if on other processors: other kernels of torch, MKL and
# OpenBLAS (those that this processor can run), one thread, and last digits that are moved.
# Arguments go to pytest: scripts/test_arithmetic.sh -x
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests/training tests/models tests/step tests/beliefs tests/prompts tests/engines tests/sampling)

run() { # NAME [VARIABLE=VALUE ...] -- [PYTEST OPTION ...]
  echo "as with $1"
  local settings=()
  while shift && [ "$1" != -- ]; do settings+=("$1"); done
  shift
  env PYTHONPATH=tests "${settings[@]}" .venv/bin/python -m pytest -q -n 2 --dist loadfile -m "not slow" \
    --durations=0 --durations-min=10 --ignore tests/engines/with_vllm "$@" "${tests[@]}"
}

# OpenBLAS takes the kernels of the next older generation where a processor lacks these.
run "SSE4.2, one thread" ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 OMP_NUM_THREADS=1 \
  OPENBLAS_CORETYPE=Nehalem -- "$@"
run "AVX2" ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell -- "$@"
run "last digits moved" OPENBLAS_CORETYPE=Zen -- -p other_arithmetic --last-digits alternating "$@"
run "other last digits moved" OPENBLAS_CORETYPE=Sandybridge -- -p other_arithmetic --last-digits scattered "$@"
