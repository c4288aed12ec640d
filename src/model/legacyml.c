/* SPDX-License-Identifier: BSD-3-Clause
 * The public entry points. Compiled for the baseline: whoever makes a handle asks the guard first, so that a function which gets a handle knows
 * that the CPU fits. Each call computes in the default floating-point mode and gives the caller's back. */
#include "../include/legacyml.h"

#include "../core/float_mode.h"
#include "../core/isa_check.h"
#include "sampler.h"
#include "tokenizer.h"
#include "transformer.h"

const char *ml_version(void) {
  return LEGACYML_VERSION;
}

uint32_t ml_version_number(void) {
  return LEGACYML_VERSION_MAJOR << 16 | LEGACYML_VERSION_MINOR << 8 | LEGACYML_VERSION_PATCH;
}

const char *ml_isa_name(void) {
  return ml_build_isa;
}

const char *ml_isa_bindings(void) {
  return ml_build_bindings;
}

const char *ml_thread_model(void) {
#ifdef ML_THREADS_PTHREAD
  return "pthread";
#else
  return "1";
#endif
}

ml_status ml_isa_check(ml_error *err) {
  ml_cpu_facts facts;
  ml_cpu_read(&facts);
  return ml_isa_decide(&facts, ml_build_isa, ml_build_required, err);
}

ml_status ml_model_open(const char *path, uint32_t flags, ml_model **out, ml_error *err) {
  *out = NULL;
  ml_status status = ml_isa_check(err);
  if (status != ML_OK) {
    return status;
  }
  if (path == NULL) {
    return ml_fail(err, ML_E_ARG, "no path to a model");
  }
  if ((flags & ~(ML_MODEL_NO_MMAP | ML_MODEL_VERIFY)) != 0) {
    return ml_fail(err, ML_E_ARG, "unknown flags 0x%x for a model", flags);
  }
  ml_float_mode mode = ml_float_mode_enter();
  status = mli_model_open(path, flags, out, err);
  ml_float_mode_leave(mode);
  return status;
}

void ml_model_close(ml_model *model) {
  if (model != NULL) {
    mli_model_close(model);
  }
}

void ml_model_get_info(const ml_model *model, ml_model_info *out) {
  mli_model_get_info(model, out);
}

ml_status ml_tokenizer_open(const char *path, int32_t n_vocab, ml_tokenizer **out, ml_error *err) {
  *out = NULL;
  ml_status status = ml_isa_check(err);
  if (status != ML_OK) {
    return status;
  }
  if (path == NULL) {
    return ml_fail(err, ML_E_ARG, "no path to a tokenizer");
  }
  if (n_vocab < 1) {
    return ml_fail(err, ML_E_ARG, "a vocabulary of %d pieces; it must have at least 1", n_vocab);
  }
  ml_float_mode mode = ml_float_mode_enter();
  status = mli_tokenizer_open(path, n_vocab, out, err);
  ml_float_mode_leave(mode);
  return status;
}

void ml_tokenizer_close(ml_tokenizer *tokenizer) {
  if (tokenizer != NULL) {
    mli_tokenizer_close(tokenizer);
  }
}

ml_status ml_tokenizer_encode(const ml_tokenizer *tokenizer, const char *text, size_t n_bytes, uint32_t flags, int32_t *ids,
                              size_t capacity, size_t *n_ids, ml_error *err) {
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_tokenizer_encode(tokenizer, text, n_bytes, flags, ids, capacity, n_ids, err);
  ml_float_mode_leave(mode);
  return status;
}

const char *ml_tokenizer_piece(const ml_tokenizer *tokenizer, int32_t previous, int32_t id, size_t *n_bytes) {
  return mli_tokenizer_piece(tokenizer, previous, id, n_bytes);
}

int32_t ml_tokenizer_vocab(const ml_tokenizer *tokenizer) {
  return mli_tokenizer_vocab(tokenizer);
}

int32_t ml_tokenizer_bos(const ml_tokenizer *tokenizer) {
  return mli_tokenizer_bos(tokenizer);
}

int ml_tokenizer_adds_bos(const ml_tokenizer *tokenizer) {
  return mli_tokenizer_adds_bos(tokenizer);
}

int ml_tokenizer_is_stop(const ml_tokenizer *tokenizer, int32_t id) {
  return mli_tokenizer_is_stop(tokenizer, id);
}

const char *ml_tokenizer_template(const ml_tokenizer *tokenizer) {
  return mli_tokenizer_template(tokenizer);
}

const char *ml_tokenizer_system(const ml_tokenizer *tokenizer) {
  return mli_tokenizer_system(tokenizer);
}

ml_status ml_context_create(const ml_model *model, int32_t context, int32_t threads, ml_context **out, ml_error *err) {
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_context_create(model, context, threads, out, err);
  ml_float_mode_leave(mode);
  return status;
}

void ml_context_free(ml_context *context) {
  if (context != NULL) {
    mli_context_free(context);
  }
}

int32_t ml_context_capacity(const ml_context *context) {
  return mli_context_capacity(context);
}

int32_t ml_context_position(const ml_context *context) {
  return mli_context_position(context);
}

int32_t ml_context_threads(const ml_context *context) {
  return mli_context_threads(context);
}

ml_status ml_context_rewind(ml_context *context, int32_t position, ml_error *err) {
  return mli_context_rewind(context, position, err);
}

const int32_t *ml_context_tokens(const ml_context *context) {
  return mli_context_tokens(context);
}

ml_status ml_context_eval(ml_context *context, const int32_t *tokens, size_t n_tokens, ml_error *err) {
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_context_eval(context, tokens, n_tokens, NULL, err);
  ml_float_mode_leave(mode);
  return status;
}

ml_status ml_context_eval_logits(ml_context *context, const int32_t *tokens, size_t n_tokens, float *logits, ml_error *err) {
  if (logits == NULL) {
    return ml_fail(err, ML_E_ARG, "the logits have nowhere to go: NULL was given");
  }
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_context_eval(context, tokens, n_tokens, logits, err);
  ml_float_mode_leave(mode);
  return status;
}

ml_status ml_context_logits(ml_context *context, const float **logits, ml_error *err) {
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_context_logits(context, logits, err);
  ml_float_mode_leave(mode);
  return status;
}

uint64_t ml_rng_seed(uint64_t seed) {
  return mli_rng_seed(seed);
}

ml_status ml_context_sample(ml_context *context, const ml_sampling *sampling, uint64_t *rng, int32_t *id, ml_error *err) {
  ml_float_mode mode = ml_float_mode_enter();
  ml_status status = mli_context_sample(context, sampling, rng, id, err);
  ml_float_mode_leave(mode);
  return status;
}

uint64_t ml_context_state_bytes(const ml_context *context) {
  return mli_context_state_bytes(context);
}

ml_status ml_context_save(const ml_context *context, void *buffer, uint64_t n_bytes, ml_error *err) {
  return mli_context_save(context, buffer, n_bytes, err);
}

ml_status ml_context_restore(ml_context *context, const void *buffer, uint64_t n_bytes, ml_error *err) {
  return mli_context_restore(context, buffer, n_bytes, err);
}
