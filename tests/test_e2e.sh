#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The same model and tokens give the same logits, byte for byte, in every build, with every number of threads, mapped or read.
#   test_e2e.sh MODEL TOKENS REFERENCE BUILD...     TOKENS as for --tokens; REFERENCE and BUILD are folders with ml_run, which may be the same
set -eu

model=$1
tokens=$2
reference=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

logits() { # logits BUILD OUT OPTION...
  build=$1
  out=$2
  shift 2
  "$build/ml_run" "$model" --tokens "$tokens" -n 0 -q --dump-logits "$out" "$@" 2>"$folder/messages" ||
    { cat "$folder/messages"; echo "failed: $build $*"; exit 1; }
}

logits "$reference" "$folder/reference" -t 1
# A run that wrote no logits, or logits that are all alike, would be equal to anything.
[ "$(od -An -v -tx4 -w4 "$folder/reference" | sort -u | wc -l)" -gt 100 ] || { echo "the reference has hardly any logits"; exit 1; }

for build in "$@"; do
  for options in "-t 1" "-t 2" "-t 3" "-t 7" "-t 1 --no-mmap"; do
    # shellcheck disable=SC2086 # several options
    logits "$build" "$folder/logits" $options
    cmp "$folder/reference" "$folder/logits" || { echo "differs: $build $options"; exit 1; }
  done
done
