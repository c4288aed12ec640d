/* SPDX-License-Identifier: BSD-3-Clause
 * Tables of the rotary embedding, without libm: another libm would round differently. */
#include "rope_table.h"

#include <stdint.h>
#include <string.h>

static double from_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint64_t to_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* Adding and taking off 1.5 * 2^52 rounds to an integer. */
static double nearest(double x) {
  const double magic = 6755399441055744.0;
  return (x + magic) - magic;
}

/* log2 of a normal number: exponent, and the series of atanh for the mantissa m, log(m) = 2 atanh((m - 1) / (m + 1)). */
static double log2_of(double x) {
  uint64_t bits = to_bits(x);
  int exponent = (int)(bits >> 52) - 1023;
  double m = from_bits((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent++;
  }
  double s = (m - 1.0) / (m + 1.0), z = s * s, p = 0.0;
  for (int k = 25; k >= 1; k -= 2) {
    p = p * z + 1.0 / k;
  }
  return exponent + 2.0 * s * p * 1.4426950408889634;
}

/* 2^x for -1022 < x < 1023: Taylor series of e^r, |r| <= ln 2 / 2. */
static double exp2_of(double x) {
  double n = nearest(x), r = (x - n) * 0.6931471805599453, p = 1.0;
  for (int k = 18; k >= 1; k--) {
    p = p * (r / k) + 1.0;
  }
  return p * from_bits((uint64_t)((int64_t)n + 1023) << 52);
}

/* sin and cos: pi/2 in three parts (the first two have 33 bits, so n times them is exact), then Taylor series for |r| <= pi/4. */
static void sin_cos(double x, double *sine, double *cosine) {
  double n = nearest(x * 0.6366197723675814);
  double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  double z = r * r, s = 1.0, c = 1.0;
  for (int k = 20; k >= 2; k -= 2) {
    s = 1.0 - s * (z / (k * (k + 1)));
    c = 1.0 - c * (z / (k * (k - 1)));
  }
  s = s * r;
  switch ((int64_t)n & 3) {
  case 0:
    *sine = s;
    *cosine = c;
    break;
  case 1:
    *sine = c;
    *cosine = -s;
    break;
  case 2:
    *sine = -s;
    *cosine = -c;
    break;
  default:
    *sine = -c;
    *cosine = s;
    break;
  }
}

void ml_rope_tables(float *cos_t, float *sin_t, float theta, const float *factors, int head_dim, int first_pos, int n_pos) {
  int pairs = head_dim / 2;
  double log2_theta = log2_of((double)theta);
  for (int i = 0; i < pairs; i++) {
    double frequency = exp2_of(-(2.0 * i / head_dim) * log2_theta);
    if (factors != NULL) {
      frequency = frequency / (double)factors[i];
    }
    for (int p = 0; p < n_pos; p++) {
      double sine, cosine;
      sin_cos((first_pos + p) * frequency, &sine, &cosine);
      cos_t[(int64_t)p * pairs + i] = (float)cosine;
      sin_t[(int64_t)p * pairs + i] = (float)sine;
    }
  }
}
