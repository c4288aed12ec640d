/* SPDX-License-Identifier: BSD-3-Clause
 * Prints the bytes of an SVE vector, 0 in builds without SVE: an emulator may give less than it was asked for. */
#include <stdio.h>
#ifdef __ARM_FEATURE_SVE
#include <arm_sve.h>
#endif

int main(void) {
#ifdef __ARM_FEATURE_SVE
  printf("%d\n", (int)svcntb());
#else
  printf("0\n");
#endif
  return 0;
}
