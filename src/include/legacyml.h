/* SPDX-License-Identifier: BSD-3-Clause
 * legacyml: inference for small Llama-style decoders with INT8/INT4 weights.
 *
 * Overview
 *   ml_model      weights, mapped from a .mlb file; read only, may be shared between contexts and threads
 *   ml_tokenizer  vocabulary; read only, may be shared between threads
 *   ml_context    KV cache, work buffers and worker threads for one sequence; one thread at a time
 *
 * A text is made like this: ml_model_open, ml_tokenizer_open, ml_context_create, ml_tokenizer_encode, ml_context_eval with
 * the prompt, then in turn ml_context_sample, ml_tokenizer_piece and ml_context_eval with one token.
 *
 * Contract
 *   - The same model and tokens give the same logits, bit for bit, in every build and with every number of threads.
 *   - A build asks the CPU before it uses anything beyond the baseline: on a CPU that lacks a feature every function that
 *     returns ml_status returns ML_E_ISA and a sentence, and none dies of an illegal instruction.
 *   - Nothing is printed, no signal is raised, no global state is kept. Functions that can fail return ml_status and, where
 *     `err` is not NULL, a sentence with the values found and expected. On failure an output handle is set to NULL.
 *   - After ml_context_create no memory is allocated by eval, logits or sample.
 *   - The caller's floating-point mode (rounding, flush to zero) neither matters nor changes.
 *
 * This header does not depend on the instruction set of the build. Everything in it is stable within one ABI number. */
#ifndef LEGACYML_H
#define LEGACYML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEGACYML_VERSION_MAJOR 0
#define LEGACYML_VERSION_MINOR 1
#define LEGACYML_VERSION_PATCH 0
#define LEGACYML_VERSION "0.1.0"
/* Number in the name of the shared library: liblegacyml.so.0 */
#define LEGACYML_ABI 0

#if defined(_WIN32)
#ifdef LEGACYML_BUILD_SHARED
#define ML_API __declspec(dllexport)
#else
#define ML_API
#endif
#elif defined(__GNUC__)
#define ML_API __attribute__((visibility("default")))
#else
#define ML_API
#endif

/* The values are also the exit statuses of ml_run. */
typedef enum ml_status {
  ML_OK = 0,
  ML_E_ARG = 2,    /* an argument is out of its range */
  ML_E_IO = 3,     /* a file cannot be opened, read or mapped */
  ML_E_FORMAT = 4, /* a file is not what it should be */
  ML_E_SHAPE = 5,  /* sizes do not fit each other, or the context is full */
  ML_E_NOMEM = 6,  /* not enough memory or address space */
  ML_E_ISA = 7,    /* the CPU, or the system, does not support this build */
  ML_E_NUMERIC = 8 /* a logit is not finite */
} ml_status;

typedef struct ml_error {
  ml_status status;
  char text[508]; /* one sentence, UTF-8, terminated, without a newline; "" after success */
} ml_error;

typedef struct ml_model ml_model;
typedef struct ml_tokenizer ml_tokenizer;
typedef struct ml_context ml_context;

/* -- Build and CPU: safe to call on any CPU of the architecture ----------------------------------------------------- */

/* "0.1.0", and major << 16 | minor << 8 | patch, of the library that runs (the macros above are those compiled against). */
ML_API const char *ml_version(void);
ML_API uint32_t ml_version_number(void);
/* The instruction set of the build as it is spelled everywhere: "scalar", "sse2", "avx2", ... */
ML_API const char *ml_isa_name(void);
/* One line for each kernel, "op symbol\n": what the build calls. */
ML_API const char *ml_isa_bindings(void);
/* "pthread" or "1": how the build was configured. */
ML_API const char *ml_thread_model(void);
/* Can this CPU run this build? ML_OK or ML_E_ISA, and the missing feature by name. */
ML_API ml_status ml_isa_check(ml_error *err);
/* The name of a status, "ML_E_FORMAT". */
ML_API const char *ml_status_name(ml_status status);

/* -- Model ---------------------------------------------------------------------------------------------------------- */

#define ML_MODEL_NO_MMAP 1u /* read the file into memory instead of mapping it */
#define ML_MODEL_VERIFY 2u  /* also scan the weights: no -128 in Q8_0, scales 0 or at least 2^-50 and finite, norms finite */

typedef struct ml_model_info {
  int32_t dim, n_layers, n_heads, n_kv_heads, head_dim, kv_dim, hidden_dim, vocab, max_seq;
  float rope_theta, norm_eps;
  int32_t weight_type;       /* 1 = Q8_0, 2 = Q4_0 */
  int32_t embedding_type;    /* 1 = Q8_0, 2 = Q4_0 */
  int32_t shared_classifier; /* 1 = logits use the embedding */
  int32_t rope_factors;      /* 1 = the file scales rotary frequencies */
  uint64_t file_bytes;
  uint64_t parameters; /* weights, without scales */
} ml_model_info;

/* path is UTF-8. Errors: ML_E_ARG, ML_E_IO, ML_E_FORMAT, ML_E_SHAPE, ML_E_NOMEM, ML_E_ISA. */
ML_API ml_status ml_model_open(const char *path, uint32_t flags, ml_model **out, ml_error *err);
/* NULL is allowed. Contexts of the model must have been freed. */
ML_API void ml_model_close(ml_model *model);
ML_API void ml_model_get_info(const ml_model *model, ml_model_info *out);

/* -- Tokenizer ------------------------------------------------------------------------------------------------------ */

/* path: tokenizer.bin of llama2.c, or a container (docs/formats.md). n_vocab: the model's count, which the file must have.
 * Errors: ML_E_ARG, ML_E_IO, ML_E_FORMAT, ML_E_SHAPE (counts differ), ML_E_NOMEM, ML_E_ISA. */
ML_API ml_status ml_tokenizer_open(const char *path, int32_t n_vocab, ml_tokenizer **out, ml_error *err);
ML_API void ml_tokenizer_close(ml_tokenizer *tokenizer);

#define ML_ENCODE_BOS 1u     /* begin with the id that begins a text, where the tokenizer has one and wants it in prompts */
#define ML_ENCODE_SPECIAL 2u /* recognise special pieces in the text */
#define ML_ENCODE_BEHIND 4u  /* the text stands behind other ids: no space goes before it where the tokenizer begins texts with one */
#define ML_ENCODE_BEHIND_SPECIAL 8u /* it stands behind a special piece: a space goes before it where the tokenizer puts one there */
/* A text of n bytes has at most n + ML_ENCODE_EXTRA ids. */
#define ML_ENCODE_EXTRA 4

/* text: n_bytes bytes of UTF-8; anything else, NUL too, is taken byte by byte. At most `capacity` ids are written, *n_ids
 * is how many the text has; if that is more than capacity the call is ML_E_ARG. ML_E_FORMAT: the text has a byte that the tokenizer has
 * no id for, nor one for what is unknown. Allocates scratch memory and frees it. */
ML_API ml_status ml_tokenizer_encode(const ml_tokenizer *tokenizer, const char *text, size_t n_bytes, uint32_t flags, int32_t *ids,
                                     size_t capacity, size_t *n_ids, ml_error *err);
/* The bytes of one id, not terminated and not always whole characters; valid as long as the tokenizer. `previous` is
 * the id before it or -1: behind the id that begins a text (and behind -1) the space that encoding put there is left out.
 * NULL and *n_bytes = 0 for an id that is not in the vocabulary. */
ML_API const char *ml_tokenizer_piece(const ml_tokenizer *tokenizer, int32_t previous, int32_t id, size_t *n_bytes);

ML_API int32_t ml_tokenizer_vocab(const ml_tokenizer *tokenizer);
/* The id that begins a text, or -1; whether a prompt starts with it; whether an id ends a text. */
ML_API int32_t ml_tokenizer_bos(const ml_tokenizer *tokenizer);
ML_API int ml_tokenizer_adds_bos(const ml_tokenizer *tokenizer);
ML_API int ml_tokenizer_is_stop(const ml_tokenizer *tokenizer, int32_t id);
/* The name of the chat template ("" = none), and the template's system message for when the user gives none. */
ML_API const char *ml_tokenizer_template(const ml_tokenizer *tokenizer);
ML_API const char *ml_tokenizer_system(const ml_tokenizer *tokenizer);

/* -- Context -------------------------------------------------------------------------------------------------------- */

/* context: positions, 1 to the model's max_seq; 0 = the smaller of max_seq and 2048.
 * threads: 1 to 1024; 0 = what the process's CPU affinity and the container's quota allow.
 * Errors: ML_E_ARG, ML_E_SHAPE, ML_E_NOMEM, ML_E_ISA. The model must outlive the context. */
ML_API ml_status ml_context_create(const ml_model *model, int32_t context, int32_t threads, ml_context **out, ml_error *err);
ML_API void ml_context_free(ml_context *context);
ML_API int32_t ml_context_capacity(const ml_context *context);
ML_API int32_t ml_context_position(const ml_context *context); /* tokens held: the next one goes to this position */
ML_API int32_t ml_context_threads(const ml_context *context);  /* that really work: 1 in a build without threads */
/* Forgets every position from `position` on; 0 starts anew. ML_E_ARG if position is negative or beyond what is held. */
ML_API ml_status ml_context_rewind(ml_context *context, int32_t position, ml_error *err);

/* The ids that are held, as many as the position says; valid until the next eval, rewind, restore or free. */
ML_API const int32_t *ml_context_tokens(const ml_context *context);

/* Processes n_tokens ids behind what is held; many at once are several times faster than one by one. ML_E_ARG: an id outside the
 * vocabulary, or n_tokens 0; ML_E_SHAPE: they do not fit the context. On an error nothing has been processed. */
ML_API ml_status ml_context_eval(ml_context *context, const int32_t *tokens, size_t n_tokens, ml_error *err);
/* The same, and the logits of every token: n_tokens x vocab floats. ML_E_NUMERIC: one is not finite; all have been processed and written. */
ML_API ml_status ml_context_eval_logits(ml_context *context, const int32_t *tokens, size_t n_tokens, float *logits, ml_error *err);
/* *logits: `vocab` floats for the last token processed, valid until the next eval, rewind or free. Computed when first asked for.
 * ML_E_ARG: nothing has been processed since the start or a rewind. ML_E_NUMERIC: one is not finite; *logits is still set. */
ML_API ml_status ml_context_logits(ml_context *context, const float **logits, ml_error *err);

#define ML_REPEAT_WINDOW 64 /* the repeat penalty looks at so many of the ids held last */

/* Applied in this order: repeat penalty, temperature, softmax, top_k, min_p, top_p, draw. Each cut works on the ids that the one before has left,
 * most probable first and the lower id first on a tie, with the probabilities of the softmax over all ids. */
typedef struct ml_sampling {
  float temperature;    /* 0 = greedy, the lowest id on a tie; else logits are divided by it */
  float top_p;          /* 1 = off; else the smallest set of most probable ids whose sum reaches top_p; 0 = the most probable */
  int32_t top_k;        /* 0 = off; else so many of the most probable ids */
  float min_p;          /* 0 = off; else ids at least min_p times as probable as the most probable one */
  float repeat_penalty; /* 0 or 1 = off; else positive logits of ids in the window are divided by it, others multiplied */
} ml_sampling;

/* The state of the random generator (xorshift64*) for a seed: the seed, or for seed 0 a fixed value that is not 0. */
ML_API uint64_t ml_rng_seed(uint64_t seed);
/* Draws the next id from the logits of the last token. *rng is used and advanced unless temperature is 0.
 * ML_E_ARG: temperature negative or not finite, top_p or min_p not in [0, 1], top_k negative, repeat_penalty negative or not finite; also
 * the errors of ml_context_logits. */
ML_API ml_status ml_context_sample(ml_context *context, const ml_sampling *sampling, uint64_t *rng, int32_t *id, ml_error *err);

/* -- What a context holds, as bytes: to go on later, or elsewhere ---------------------------------------------------- */

/* The bytes that ml_context_save writes now. */
ML_API uint64_t ml_context_state_bytes(const ml_context *context);
/* Copies what is held (ids, keys and values, whether there are logits) to buffer. The bytes do not depend on build, threads or context
 * size. ML_E_ARG: n_bytes is not ml_context_state_bytes. */
ML_API ml_status ml_context_save(const ml_context *context, void *buffer, uint64_t n_bytes, ml_error *err);
/* Replaces what is held by what was saved from a context of the same model file; logits and all that follows are then the same.
 * ML_E_FORMAT: not such bytes, cut off or changed; ML_E_SHAPE: of another model, or more positions than the context has. On an error the
 * context is as it was. */
ML_API ml_status ml_context_restore(ml_context *context, const void *buffer, uint64_t n_bytes, ml_error *err);

#ifdef __cplusplus
}
#endif
#endif
