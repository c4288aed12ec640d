#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs what is missing on Debian when run as root; otherwise says what to install.
#   prepare.sh build    a C compiler, Python with venv and Python.h
#   prepare.sh package  also what building conda packages for this machine takes
#   prepare.sh test     also what only the tests need: Clang, compilers for ARM and Windows, emulated CPUs, wine
set -eu

missing=
need() { # need PACKAGE COMMAND...: the package, if the command fails
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}

# The compiler runs, and has the C library's headers.
compiles() { echo '#include <stdio.h>' | "$1" -x c -c -o /dev/null -; }

"${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "${PYTHON:-python3} is $("${PYTHON:-python3}" --version 2>&1), and the tools of the project need 3.11 or later: set PYTHON" >&2
  exit 1
}
need gcc compiles "${CC:-gcc}"
need libc6-dev compiles "${CC:-gcc}"
need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
need python3-dev "${PYTHON:-python3}" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
if [ "${1:-build}" != build ]; then
  need pkg-config pkg-config --version
  need git git --version
fi
if [ "${1:-build}" = test ]; then
  need clang clang --version
  need binutils objdump --version
  need qemu-user qemu-x86_64 --version
  need g++ g++ --version
  need cmake cmake --version
  need ninja-build ninja --version
  need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc --version
  need libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdio.h
  need gcc-arm-linux-gnueabihf arm-linux-gnueabihf-gcc --version
  need libc6-dev-armhf-cross test -e /usr/arm-linux-gnueabihf/include/stdio.h
  need gcc-mingw-w64-x86-64 x86_64-w64-mingw32-gcc --version
  need wine wine --version
  need wine64 test -x /usr/lib/wine/wine64
fi

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing:$missing" >&2
  apt-get update -qq >&2
  # shellcheck disable=SC2086 # a list of packages
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >&2
else
  echo "these Debian packages are missing and only root can install them:$missing" >&2
  exit 1
fi
