#!/usr/bin/env bash
# Is it green every time? Stages of `make test`, again and again, on a machine as busy as one likes. Fails if any was red.
#
#   tests/repeat.sh 10 browser                    ten times
#   LOAD=8 tests/repeat.sh 3 tests alone          while eight processes do nothing but keep the cores busy
#   INTERRUPT=ignored tests/repeat.sh 1 tests     started with SIGINT ignored, as many runners do
set -uo pipefail
cd "$(dirname "$0")/.."
times=$1 status=0
shift
trap 'kill $(jobs -p) 2>/dev/null' EXIT
for ((i = 0; i < ${LOAD:-0}; i++)); do while kill -0 $$; do :; done 2>/dev/null & done
[ "${INTERRUPT:-}" = ignored ] && trap '' INT
for stage in "$@"; do
  red=0
  for ((run = 0; run < times; run++)); do make test STAGES="$stage" || ((red++)); done
  said+="$stage: red $red times in $times runs"$'\n'
  ((red == 0)) || status=1
done
printf '\n%s' "${said-}"
exit $status
