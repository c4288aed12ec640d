/* SPDX-License-Identifier: BSD-3-Clause
 * A model at work: prompts in, answers out.
 *
 * Functions return 0 to go on, or an exit status (an ml_status, or 130 after Ctrl-C) after a line on standard error. */
#ifndef ML_APP_SESSION_H
#define ML_APP_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "../include/legacyml.h"
#include "chat.h"
#include "files.h"
#include "json.h"
#include "options.h"

typedef enum { STOP_COUNT, STOP_TOKEN, STOP_TEXT, STOP_FULL, STOP_INTERRUPTED, STOP_CLOSED, STOP_INPUT } stop_reason;

/* Positions whose logits are held at once. */
#define SESSION_ROWS 32

typedef enum {
  OUTPUT_TEXT,   /* to standard output as it comes */
  OUTPUT_JSON,   /* a JSON line for each token, and one for the whole */
  OUTPUT_COLLECT /* into `text` and `ids` only */
} output_kind;

typedef struct {
  size_t prompt, generated, decoded; /* tokens; decoded: generated and fed back */
  double prompt_ms, decode_ms;
} run_counts;

typedef struct {
  const run_options *options; /* in a batch those of the line */
  output_kind output;
  ml_model *model;
  ml_model_info info;
  ml_tokenizer *tokenizer; /* NULL = ids are printed */
  ml_context *context;
  chat_template chat;
  output_file dump;
  float *rows; /* SESSION_ROWS x vocab, where the logits of every position are wanted */
  uint64_t seed, random;
  int sampled;  /* the last answer: by chance, with the seed */
  id_list owed; /* what has been said and is not in the context yet: it goes before the next prompt */
  stop_reason stop;
  double load_ms;
  run_counts turn, total; /* of the last answer, and of all */
  text_buffer text;       /* the last answer and its ids, if it is not only printed */
  id_list ids;
} session;

/* Why an answer ended, for people. */
const char *stop_text(stop_reason stop);

/* Opens the tokenizer, if there is one and it is needed, and the chat template of --chat. */
int session_open_tokenizer(session *s);
/* The context, the file of --dump-logits, the state of --load-session. */
int session_open_context(session *s);
/* Writes --save-session, if `status` is that of a run whose state is worth it, and ends the logits file. Returns the status of the run. */
int session_finish(session *s, int status);
void session_close(session *s);

/* A text as a prompt: with --chat a message, else special pieces in it are recognised. `first` = nothing stands before it. */
int session_prompt(const session *s, int first, const char *text, size_t n_bytes, id_list *prompt);
/* Processes ids, in stretches so short that Ctrl-C acts at once, and says on a terminal how far many of them are. Sets stop if it was
 * interrupted. */
int session_feed(session *s, const int32_t *ids, size_t n);
/* Processes at most SESSION_ROWS ids, whose logits s->rows has afterwards. */
int session_eval_rows(session *s, const int32_t *ids, size_t n);
/* Processes a prompt, behind what is owed, and answers it. An interrupted prompt is taken back. */
int session_answer(session *s, const id_list *prompt);

/* The members of a JSON object that say what the last answer is. */
void session_describe(const session *s, text_buffer *line);
/* The members that say what has answered. */
void session_describe_model(const session *s, text_buffer *line);
/* Writes a line to standard output and frees it. A reader that has gone sets stop to STOP_CLOSED. */
int session_write_line(session *s, text_buffer *line);

#endif
