/* SPDX-License-Identifier: BSD-3-Clause
 * Rotation of one interleaved pair: the reference, and the rest that fills no vector. */
#ifndef ML_KERNELS_SCALAR_ROPE_PAIR_H
#define ML_KERNELS_SCALAR_ROPE_PAIR_H

/* (pair[0], pair[1]) = (a c - b s, a s + b c) */
static inline void ml_rope_pair(float *pair, float c, float s) {
  float a = pair[0];
  float b = pair[1];
  pair[0] = a * c - b * s;
  pair[1] = a * s + b * c;
}

#endif
