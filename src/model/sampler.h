/* SPDX-License-Identifier: BSD-3-Clause
 * From logits to one id: greedy, or a draw at a temperature from the most probable ids. */
#ifndef ML_MODEL_SAMPLER_H
#define ML_MODEL_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "../core/status.h"

/* Bytes of scratch that a draw from `vocab` logits needs, aligned to ML_ALIGN. vocab is 1 to 2^24. */
size_t ml_sampler_bytes(int32_t vocab);

/* *id = the next id, by the rules of ml_sampling; `recent` are the n_recent ids that the repeat penalty is for. With temperature 0 rng is not
 * touched, and without a penalty nor is scratch. *rng is a state of mli_rng_seed and advances by one step.
 * Errors: ML_E_ARG (a parameter out of its range); ML_E_NUMERIC (a logit is NaN or +infinity, or all are -infinity). On an error *rng and *id are
 * unchanged. */
ml_status ml_sampler_draw(const float *logits, int32_t vocab, const ml_sampling *sampling, const int32_t *recent, size_t n_recent,
                          uint64_t *rng, void *scratch, int32_t *id, ml_error *err);

uint64_t mli_rng_seed(uint64_t seed);

#endif
