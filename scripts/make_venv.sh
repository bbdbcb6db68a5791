#!/bin/sh
# Makes a virtual environment with the newest supported Python there is, and installs mailgres in
# it, editable, with everything for development: the versions and hashes of requirements/dev.txt.
# PYTHON=/path/to/python chooses the interpreter.
set -eu

venv=$1
supported='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c "$supported" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11, 3.12 or 3.13 with the venv module was found." >&2
    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or set PYTHON=/path/to/it." >&2
    return 1
}

if ! "$venv/bin/python" -c "$supported" >/dev/null 2>&1; then
    python=$(find_python)
    echo "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install --require-hashes --requirement requirements/dev.txt
pip install --no-deps --no-build-isolation --editable .
