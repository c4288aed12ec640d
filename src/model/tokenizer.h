/* SPDX-License-Identifier: BSD-3-Clause
 * Text to ids and back. The contract of each function is that of ml_tokenizer_... in legacyml.h. */
#ifndef ML_MODEL_TOKENIZER_H
#define ML_MODEL_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "../core/status.h"

ml_status mli_tokenizer_open(const char *path, int32_t n_vocab, ml_tokenizer **out, ml_error *err);
void mli_tokenizer_close(ml_tokenizer *tokenizer);
/* Also ML_E_FORMAT: the text has a byte that the tokenizer has no id for, nor an id for what is unknown. */
ml_status mli_tokenizer_encode(const ml_tokenizer *tokenizer, const char *text, size_t n_bytes, uint32_t flags, int32_t *ids,
                               size_t capacity, size_t *n_ids, ml_error *err);
const char *mli_tokenizer_piece(const ml_tokenizer *tokenizer, int32_t previous, int32_t id, size_t *n_bytes);
int32_t mli_tokenizer_vocab(const ml_tokenizer *tokenizer);
int32_t mli_tokenizer_bos(const ml_tokenizer *tokenizer);
int mli_tokenizer_adds_bos(const ml_tokenizer *tokenizer);
int mli_tokenizer_is_stop(const ml_tokenizer *tokenizer, int32_t id);
const char *mli_tokenizer_template(const ml_tokenizer *tokenizer);
const char *mli_tokenizer_system(const ml_tokenizer *tokenizer);

#endif
