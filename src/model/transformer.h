/* SPDX-License-Identifier: BSD-3-Clause
 * The model file and the forward pass. Functions with the prefix mli_ are the bodies of the public ones (legacyml.h has the contract); they
 * are compiled for the ISA and may only be called after the guard has passed. */
#ifndef ML_MODEL_TRANSFORMER_H
#define ML_MODEL_TRANSFORMER_H

#include "../include/legacyml.h"

ml_status mli_model_open(const char *path, uint32_t flags, ml_model **out, ml_error *err);
void mli_model_close(ml_model *model);
void mli_model_get_info(const ml_model *model, ml_model_info *out);

ml_status mli_context_create(const ml_model *model, int32_t context, int32_t threads, ml_context **out, ml_error *err);
void mli_context_free(ml_context *context);
int32_t mli_context_capacity(const ml_context *context);
int32_t mli_context_position(const ml_context *context);
int32_t mli_context_threads(const ml_context *context);
ml_status mli_context_rewind(ml_context *context, int32_t position, ml_error *err);
const int32_t *mli_context_tokens(const ml_context *context);
ml_status mli_context_eval(ml_context *context, const int32_t *tokens, size_t n_tokens, float *logits, ml_error *err);
ml_status mli_context_logits(ml_context *context, const float **logits, ml_error *err);
ml_status mli_context_sample(ml_context *context, const ml_sampling *sampling, uint64_t *rng, int32_t *id, ml_error *err);
uint64_t mli_context_state_bytes(const ml_context *context);
ml_status mli_context_save(const ml_context *context, void *buffer, uint64_t n_bytes, ml_error *err);
ml_status mli_context_restore(ml_context *context, const void *buffer, uint64_t n_bytes, ml_error *err);

#endif
