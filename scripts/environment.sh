#!/usr/bin/env bash
# Makes a virtual environment and installs into it with uv, in a tenth of the time that pip takes.
#
#   scripts/environment.sh FOLDER [what and how to install, as for `uv pip install`]
#
# Where packages come from is read from pip's configuration, which uv does not read.
set -euo pipefail

.venv/bin/pip install -q -c constraints.txt uv
python3 -m venv "$1"
setting() { .venv/bin/pip config get "global.$1" 2>/dev/null || true; }
separated() { tr -s ' \n' "$1" | sed "s/$1\$//"; }
export UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_CONSTRAINT SSL_CERT_FILE
UV_DEFAULT_INDEX=$(setting index-url)
UV_INDEX=$(setting extra-index-url | separated ' ')
UV_FIND_LINKS=$(setting find-links | separated ,)
UV_CONSTRAINT=$(setting constraint | separated ' ')
SSL_CERT_FILE=$(setting cert)
for name in UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_CONSTRAINT SSL_CERT_FILE; do
  [ -n "${!name}" ] || unset "$name"
done
.venv/bin/uv pip install -q --index-strategy unsafe-best-match --python "$1/bin/python" "${@:2}"
