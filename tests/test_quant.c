/* SPDX-License-Identifier: BSD-3-Clause
 * The quantizer of the build: error of every element, zero, tiny, largest and not finite blocks. */
#include "../src/config/ml_config.h"

#include <math.h>

#include "harness.h"

enum { BLOCKS = 64, N = BLOCKS * ML_QK };

static float x[N], d[BLOCKS];
static int8_t q[N];
static int32_t sums[BLOCKS];

static void quantize(int n) {
  ml_qact act = {q, d, sums, n};
  memset(q, 99, sizeof q);
  ml_k_quantize_q8(&act, x, n);
}

/* |q d - x| <= d / 2 (1 + 2^-15), in binary64; the 2^-15 is what three roundings to binary32 can add. */
static void test_error(int exponent) {
  for (int i = 0; i < N; i++) {
    x[i] = ldexpf((float)(int32_t)harness_random(), exponent);
  }
  quantize(N);
  for (int i = 0; i < N; i++) {
    double step = (double)d[i / ML_QK], error = fabs((double)q[i] * step - (double)x[i]);
    CHECK(error <= step / 2 * (1 + 1.0 / 32768), "2^%d, element %d: error %g, scale %g", exponent, i, error, step);
    CHECK(q[i] >= -127, "2^%d, element %d is %d", exponent, i, q[i]);
  }
  for (int b = 0; b < BLOCKS; b++) {
    int largest = 0;
    for (int i = 0; i < ML_QK; i++) {
      largest = abs(q[b * ML_QK + i]) > largest ? abs(q[b * ML_QK + i]) : largest;
    }
    CHECK(largest == 127, "2^%d, block %d: largest quant is %d", exponent, b, largest);
  }
}

/* One value among zeros. */
static void test_single(float value, float scale, int quant) {
  memset(x, 0, sizeof x);
  x[19] = value;
  quantize(ML_QK);
  CHECK(d[0] == scale || (scale != scale && d[0] != d[0]), "%g: scale %g, expected %g", (double)value, (double)d[0], (double)scale);
  for (int i = 0; i < ML_QK; i++) {
    CHECK(q[i] == (i == 19 ? quant : 0), "%g: element %d is %d", (double)value, i, q[i]);
  }
}

/* Half steps round away from zero. */
static void test_ties(void) {
  for (int i = 0; i < ML_QK; i++) {
    x[i] = (float)i + 0.5f;
  }
  x[31] = -127.0f;
  x[30] = -0.5f;
  x[29] = 0.49f;
  quantize(ML_QK);
  for (int i = 0; i < 29; i++) {
    CHECK(q[i] == i + 1, "%d.5 became %d", i, q[i]);
  }
  CHECK(d[0] == 1.0f && q[31] == -127 && q[30] == -1 && q[29] == 0, "ties: %g %d %d %d", (double)d[0], q[31], q[30], q[29]);
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  for (int exponent = -70; exponent <= 90; exponent += 10) {
    test_error(exponent);
  }
  test_single(0.0f, 0.0f, 0);
  test_single(-0.0f, 0.0f, 0);
  test_single(127.0f, 1.0f, 127);
  test_single(-127.0f, 1.0f, -127);
  test_single(127.0f * ML_D_MIN, ML_D_MIN, 127);
  test_single(126.9f * ML_D_MIN, 0.0f, 0);
  test_single(1e-40f, 0.0f, 0);
  test_single(3.4028234664e38f, 3.4028234664e38f / 127.0f, 127);
  test_single(INFINITY, NAN, 0);
  test_single(-INFINITY, NAN, 0);
  test_single(NAN, NAN, 0);
  test_ties();
  return harness_finish();
}
