#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euxo pipefail

python -m pip install "./python/$TOOL" -vv --no-deps --no-build-isolation
# Where it was built, and the hash of a program with that path in it, are of no use to anybody else.
cd "$SP_DIR/$TOOL"-*.dist-info
rm direct_url.json
sed -i '/direct_url\.json,/d; /\/bin\//d' RECORD
cd "$SRC_DIR/docs"
program=${TOOL//_/-}
install -Dm 644 "man/$program.1" "$PREFIX/share/man/man1/$program.1"
install -Dm 644 "completion/bash/$program" "$PREFIX/share/bash-completion/completions/$program"
install -Dm 644 "completion/zsh/_$program" "$PREFIX/share/zsh/site-functions/_$program"
