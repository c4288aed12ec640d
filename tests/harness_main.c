/* SPDX-License-Identifier: BSD-3-Clause
 * Where every C test starts: on a CPU that cannot run the build it is skipped, with the guard's sentence and status 77. Compiled for the
 * baseline of the architecture, as src/app/main_guard.c is. */
#include <stdio.h>

#include "../src/include/legacyml.h"

int test_main(int argc, char **argv); /* the test's own */

int main(int argc, char **argv) {
  ml_error err;
  if (ml_isa_check(&err) != ML_OK) {
    printf("SKIPPED: %s\n", err.text);
    return 77;
  }
  return test_main(argc, argv);
}
