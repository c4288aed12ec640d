/* SPDX-License-Identifier: BSD-3-Clause
 * Constants of the block formats: a block is 32 elements along a row with one float scale. */
#ifndef ML_CORE_QUANT_H
#define ML_CORE_QUANT_H

#define ML_QK 32  /* elements of a block */
#define ML_Q8_0 1 /* int8 per element, value = q * d */
#define ML_Q4_0 2 /* 16 bytes; low nibble = element i, high nibble = element 16 + i; value = (nibble - 8) * d */
#define ML_Q8_BLOCK_BYTES 32
#define ML_Q4_BLOCK_BYTES 16
#define ML_D_MIN 0x1p-50f /* a smaller scale is 0: keeps subnormals out of the model */
#define ML_MAX_COLS 65536 /* longest row of a matrix: bounds the scratch that a kernel takes from the stack */
#define ML_ALIGN 64       /* every array of a model file, every arena allocation */

#endif
