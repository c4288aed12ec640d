/* SPDX-License-Identifier: BSD-3-Clause
 * Where every program starts: asks whether this CPU can run the build before any code of its ISA does.
 *
 * Compiled for the baseline of the architecture, so that on an older CPU this file still runs and says what is missing. There is
 * no way around it: --help and --version are refused too. */
#include "main_guard.h"

#include <stdio.h>
#include <string.h>

#include "../include/legacyml.h"

int main(int argc, char **argv) {
  ml_error err;
  if (ml_isa_check(&err) != ML_OK) {
    const char *path = argc > 0 ? argv[0] : "legacyml";
    const char *slash = strrchr(path, '/');
    fprintf(stderr, "%s: %s\n", slash != NULL ? slash + 1 : path, err.text);
    return ML_E_ISA;
  }
  return ml_main(argc, argv);
}
