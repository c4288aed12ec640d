/* SPDX-License-Identifier: BSD-3-Clause
 * Matrix-vector kernels that want the activations as they are (matvec_rows.h). */
#ifndef ML_KERNELS_VECTOR_PLAIN_ACTIVATIONS_H
#define ML_KERNELS_VECTOR_PLAIN_ACTIVATIONS_H

#include "../inline.h"
#include "../kernels.h"

typedef ml_qact activations;

ML_INLINE void prepare(activations *out, const ml_qact *x) {
  *out = *x;
}

#endif
