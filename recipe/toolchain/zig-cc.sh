#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# zig's compiler under the name and with the options of a conda GCC: it knows neither GCC's names for ARM instruction sets nor some linker options.
set -eu
target=@TARGET@ zig=@ZIG@ triplet=@TRIPLET@
export ZIG_GLOBAL_CACHE_DIR="${ZIG_GLOBAL_CACHE_DIR:-@CACHE@}" ZIG_LOCAL_CACHE_DIR="${ZIG_LOCAL_CACHE_DIR:-@CACHE@}"

options=() features='' fpu=
for option in "$@"; do
  case $option in
  -dumpmachine) echo "$triplet" && exit ;;
  -march=native) echo "zig-cc: -march=native depends on the machine that builds" >&2 && exit 1 ;;
  -march=x86-64 | -march=nocona | -march=armv8-a | -march=armv7-a | -mfloat-abi=hard | -mtune=*) ;;
  -march=armv8.2-a*) features+=+v8_2a${option#-march=armv8.2-a} ;;
  -mfpu=neon) fpu=+neon ;;
  -mfpu=vfpv3-d16) fpu=+vfp3d16-neon-d32 ;;
  -mno-outline-atomics) options+=(-mno-outline-atomics) ;;
  -fno-plt | -Wl,-O2 | -Wl,--sort-common | -Wl,--disable-new-dtags | -Wl,-rpath-link,*) ;;
  *) options+=("$option") ;;
  esac
done
case $target in
x86_64-*) cpu=x86_64 ;;
aarch64-*) cpu=generic$features ;;
arm-*) cpu=generic+v7a${fpu:-+vfp3d16-neon-d32} ;; # zig's own ARMv7 has NEON and 32 registers
esac
# zig switches UBSan on without -O and defines NDEBUG with it.
exec "$zig" cc -target "$target" "-mcpu=$cpu" "${options[@]}" -fno-sanitize=undefined -UNDEBUG
