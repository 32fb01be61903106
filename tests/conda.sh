#!/usr/bin/env bash
# README's route by conda, once a week: create, activate, and that make works in it. CONDA: where conda is, if not on the path.
set -eo pipefail
cd "$(dirname "$0")/.."
eval "$("${CONDA:+$CONDA/bin/}conda" shell.bash hook)"
conda env create --quiet --file environment.yml
conda activate labkit
make -n lab | grep -qF "$CONDA_PREFIX/bin/python -m jupyter lab"
make test STAGES="pairs book"
