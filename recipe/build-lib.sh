#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euxo pipefail

# Programs and library without symbol tables: they are looked at by nobody who installs a package.
export LDFLAGS="$LDFLAGS -Wl,-s"
# BUILD: conda's variable of this name is a triplet.
make -j"${CPU_COUNT:-1}" BUILD=build ISA="$ISA" THREADS=pthread PREFIX="$PREFIX" install
rm "$PREFIX/lib/liblegacyml.a"
