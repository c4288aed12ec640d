/* SPDX-License-Identifier: BSD-3-Clause
 * Folding the lanes of a sum in halves. */
#ifndef ML_KERNELS_SCALAR_FOLD_H
#define ML_KERNELS_SCALAR_FOLD_H

/* lane[l] += lane[l + width / 2], then width / 4, down to one. width: a power of two. */
static inline float ml_fold(float *lane, int width) {
  for (int half = width / 2; half >= 1; half /= 2) {
    for (int l = 0; l < half; l++) {
      lane[l] = lane[l] + lane[l + half];
    }
  }
  return lane[0];
}

#endif
