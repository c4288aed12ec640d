/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_* in plain C: dot products of what the first-level cache holds, as the compiler translates them. It may take
 * vectors that the architecture always has, so registers are its choice. */
#include <stdint.h>

#include "../kernels.h"

enum { BYTES = 4096, FLOATS = 1024, LANES = 16 };

static volatile int peak_operand = 1; /* no compiler knows what is multiplied */

double ml_k_peak_q8(long steps) {
  int8_t w[BYTES], x[BYTES];
  for (int i = 0; i < BYTES; i++) {
    w[i] = x[i] = (int8_t)peak_operand;
  }
  for (long n = 0; n < steps; n++) {
    int32_t sum = 0;
    w[n % BYTES] = (int8_t)(n % 100); /* or every sum would be the same */
    for (int i = 0; i < BYTES; i++) {
      sum += (int32_t)w[i] * (int32_t)x[i];
    }
    volatile int32_t result = sum;
    (void)result;
  }
  return (double)steps * BYTES;
}

double ml_k_peak_q4(long steps) {
  return ml_k_peak_q8(steps);
}

double ml_k_peak_f32(long steps) {
  float w[FLOATS], x[FLOATS];
  for (int i = 0; i < FLOATS; i++) {
    w[i] = x[i] = (float)peak_operand;
  }
  for (long n = 0; n < steps; n++) {
    float lanes[LANES] = {0};
    w[n % FLOATS] = (float)(n % 100);
    for (int i = 0; i < FLOATS; i += LANES) {
      for (int l = 0; l < LANES; l++) {
        lanes[l] += w[i + l] * x[i + l];
      }
    }
    volatile float result = lanes[n % LANES];
    (void)result;
  }
  return (double)steps * FLOATS;
}
