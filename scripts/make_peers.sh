#!/bin/sh
# Installs the queues that the benchmarks compare with: those in Python in .venv-peers, those in JavaScript
# beside their scripts. A package that cannot be installed does not stop the others: the scorecard reports
# its queue as missing.
set -eu
python3 -m venv .venv-peers
pip=.venv-peers/bin/pip
if ! $pip install --quiet --requirement requirements/peers.txt; then
    grep -v '^#' requirements/peers.txt | while read -r package; do
        $pip install --quiet --no-deps "$package" || echo "not installed: $package" >&2
    done
fi
cd benchmarks/peers/node
npm ci --silent --no-audit --no-fund || echo "not installed: the peers in JavaScript" >&2
