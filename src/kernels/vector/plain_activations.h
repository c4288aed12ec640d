/* SPDX-License-Identifier: BSD-3-Clause
 * Q8_0 weights and activations as they are, for matrix-vector kernels (matvec_rows.h): activations, prepare and BLOCK_BYTES. */
#ifndef ML_KERNELS_VECTOR_PLAIN_ACTIVATIONS_H
#define ML_KERNELS_VECTOR_PLAIN_ACTIVATIONS_H

#include "../inline.h"
#include "../kernels.h"

#define BLOCK_BYTES ML_Q8_BLOCK_BYTES

typedef ml_qact activations;

ML_INLINE void prepare(activations *out, const ml_qact *x) {
  *out = *x;
}

#endif
