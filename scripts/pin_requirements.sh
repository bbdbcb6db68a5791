#!/bin/sh
# From `pip freeze` to a constraints file: only `name==version` lines, so that no index, host or
# local path gets in.
set -eu
echo "# Versions that development and CI use. Written by \`make requirements\`."
grep -E '^[A-Za-z0-9._-]+==[^ ]+$' | grep -viE '^mailgres=='
