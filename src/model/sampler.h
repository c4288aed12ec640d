/* SPDX-License-Identifier: BSD-3-Clause
 * From logits to one id: greedy, or a draw at a temperature from the most probable ids. */
#ifndef ML_MODEL_SAMPLER_H
#define ML_MODEL_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "../core/status.h"

/* Bytes of scratch that a draw from `vocab` logits needs, aligned to ML_ALIGN. vocab is 1 to 2^24. */
size_t ml_sampler_bytes(int32_t vocab);

/* *id = the next id. Temperature 0: the largest logit, the lowest id on a tie; rng and scratch are not touched. Else: softmax of the logits
 * over the temperature, ids in falling order of probability (lower id first on a tie), the smallest leading set whose sum reaches top_p,
 * and a draw from it. *rng is a state of mli_rng_seed and advances by one step.
 * Errors: ML_E_ARG (temperature negative or not finite, top_p not in [0, 1]); ML_E_NUMERIC (a logit is NaN or +infinity, or all are
 * -infinity). On an error *rng and *id are unchanged. */
ml_status ml_sampler_draw(const float *logits, int32_t vocab, const ml_sampling *sampling, uint64_t *rng, void *scratch, int32_t *id,
                          ml_error *err);

uint64_t mli_rng_seed(uint64_t seed);

#endif
