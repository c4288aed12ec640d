/* SPDX-License-Identifier: BSD-3-Clause
 * Tables of the rotary embedding. */
#ifndef ML_MODEL_ROPE_TABLE_H
#define ML_MODEL_ROPE_TABLE_H

/* Rows of head_dim / 2 values, one for each position first_pos <= p < first_pos + n_pos: cos and sin of p * theta^(-2i/head_dim) / factors[i],
 * computed in binary64 with + - * / and integers only and rounded once, so that every machine has the same table.
 * factors: head_dim / 2 values of at least 0.01, or NULL for none. Positions below 2^24. The same bits
 * everywhere; the correctly rounded ones but for about one entry in ten thousand, at large positions, which is a near tie. */
void ml_rope_tables(float *cos_t, float *sin_t, float theta, const float *factors, int head_dim, int first_pos, int n_pos);

#endif
