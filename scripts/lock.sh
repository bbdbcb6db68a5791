#!/bin/sh
# Writes the lock files: every package that is installed, with the hashes of its files, for every
# supported Python. They name no index and no host. `scripts/lock.sh path/to/uv`.
set -eu
uv=$1

lock() {
    file=requirements/$1.txt
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
        --no-annotate --no-header --no-emit-index-url --output-file "$file.new" "$@"
    { echo '# Written by `make requirements`.'; cat "$file.new"; } > "$file"
    rm "$file.new"
}

lock dev --extra dev --extra embedded --extra ses --extra http pyproject.toml
lock runtime --extra ses --extra http --constraint requirements/dev.txt pyproject.toml
echo 'build cyclonedx-bom hatchling twine' | tr ' ' '\n' | lock release -
