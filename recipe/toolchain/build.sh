#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes one package of the toolchain: TOOL, compiling for the platform CROSS.
set -euo pipefail

ZIG_GLIBC=${ZIG_GLIBC:-}
case ${CROSS:-} in
linux-64) triplet=x86_64-conda-linux-gnu debian=x86_64-linux-gnu zig_target=x86_64-linux-gnu.$ZIG_GLIBC flags='-march=nocona -mtune=haswell' ;;
linux-aarch64) triplet=aarch64-conda-linux-gnu debian=aarch64-linux-gnu zig_target=aarch64-linux-gnu.$ZIG_GLIBC flags='' ;;
linux-armv7l) triplet=armv7l-conda-linux-gnueabihf debian=arm-linux-gnueabihf zig_target=arm-linux-gnueabihf.$ZIG_GLIBC flags='-march=armv7-a -mfpu=vfpv3-d16' ;;
esac
case $TOOL in
qemu-execve-aarch64) debian=aarch64-linux-gnu ;;
qemu-execve-arm) debian=arm-linux-gnueabihf ;;
esac
mkdir -p "$PREFIX/bin" "$PREFIX/etc/conda/activate.d"

tool() { # tool NAME COMMAND...: bin/NAME runs the command
  printf '#!/bin/sh\nexec %s "$@"\n' "${*:2}" >"$PREFIX/bin/$1"
  chmod +x "$PREFIX/bin/$1"
}

compiler() { # the variables that conda-forge's compiler packages set, with the same flags
  cat >"$PREFIX/etc/conda/activate.d/activate-cc_$CROSS.sh" <<EOF
export CC="\$CONDA_PREFIX/bin/$triplet-cc" AR="\$CONDA_PREFIX/bin/$triplet-ar" RANLIB="\$CONDA_PREFIX/bin/$triplet-ranlib"
export HOST=$triplet CONDA_TOOLCHAIN_HOST=$triplet
if [ "\${CONDA_BUILD:-0}" = 1 ]; then
  export CFLAGS="$flags -ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections -pipe -isystem \$PREFIX/include"
  export CFLAGS="\$CFLAGS -fdebug-prefix-map=\$SRC_DIR=/usr/local/src/conda/\$PKG_NAME-\$PKG_VERSION -fdebug-prefix-map=\$PREFIX=/usr/local/src/conda-prefix"
  export CPPFLAGS="-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem \$PREFIX/include"
  export LDFLAGS="-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags -Wl,--gc-sections"
  export LDFLAGS="\$LDFLAGS -Wl,-rpath,\$PREFIX/lib -Wl,-rpath-link,\$PREFIX/lib -L\$PREFIX/lib"
fi
EOF
}

case $TOOL in
zig)
  sed -e "s|@ZIG@|'$ZIG'|; s|@TARGET@|$zig_target|; s|@TRIPLET@|$triplet|; s|@CACHE@|$ZIG_CACHE|g" "$RECIPE_DIR/zig-cc.sh" >"$PREFIX/bin/$triplet-cc"
  chmod +x "$PREFIX/bin/$triplet-cc"
  tool $triplet-ar "'$ZIG' ar"
  tool $triplet-ranlib "'$ZIG' ranlib"
  compiler
  ;;
gcc)
  for program in gcc ar ranlib; do
    tool $triplet-${program/gcc/cc} /usr/bin/$debian-$program
  done
  compiler
  ;;
sysroot)
  mkdir -p "$PREFIX/share/sysroot"
  echo "$PKG_VERSION" >"$PREFIX/share/sysroot/$CROSS"
  ;;
qemu-execve-*)
  echo "export CROSSCOMPILING_EMULATOR='/usr/bin/qemu-${TOOL##*-} -L /usr/$debian -cpu max'" >"$PREFIX/etc/conda/activate.d/$TOOL.sh"
  ;;
*) # make, pkg-config
  tool "$TOOL" "/usr/bin/$TOOL"
  ;;
esac
