#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euxo pipefail

export LDFLAGS="$LDFLAGS -Wl,-s"
# PYTHON is the target's when cross building: the generator runs with the build machine's. The rpath leads from lib/python3.x/site-packages/legacyml,
# where every Python finds the package, to lib.
make python BUILD=build PYTHON="$BUILD_PREFIX/bin/python" PY_LIB="$PREFIX/lib" PY_INCLUDE="$PREFIX/include/python$PY_VER" \
  PY_OUT="$SP_DIR/legacyml" PY_RPATH='$$ORIGIN/../../..'
cp python/legacyml/*.py python/legacyml/*.pyi python/legacyml/py.typed "$SP_DIR/legacyml/"
rm "$SP_DIR/legacyml/build_native.py"
# What pip and importlib.metadata know a package by. pip itself would compile for the machine that builds.
(cd python && "$BUILD_PREFIX/bin/python" -c 'import sys, setuptools.build_meta as hooks; hooks.prepare_metadata_for_build_wheel(sys.argv[1])' "$SP_DIR")
rm -r "$SP_DIR/legacyml.egg-info"
echo conda >"$SP_DIR/legacyml-$PKG_VERSION.dist-info/INSTALLER"
