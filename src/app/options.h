/* SPDX-License-Identifier: BSD-3-Clause
 * The options of ml_run. */
#ifndef ML_APP_OPTIONS_H
#define ML_APP_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* A text that was not given is NULL, a flag that was not given 0. Texts point into argv. */
typedef struct {
  const char *model;
  const char *tokenizer;
  const char *prompt, *file, *tokens; /* at most one of the three */
  int32_t count;                      /* tokens to generate; INT32_MAX = to the end of the context */
  int32_t threads, context;           /* 0 = the library's choice */
  float temperature, top_p, min_p, repeat_penalty;
  int32_t top_k;
  uint64_t seed;
  int has_seed;
  const char **stops; /* n_stops texts, none of them empty */
  size_t n_stops;
  int chat;
  const char *template_name, *system;
  const char *dump_logits, *save_session, *load_session;
  const char *perplexity, *batch;
  int json;
  int info, no_mmap, verify, quiet;
  int check_cpu, version, help;
} run_options;

/* Reads the command line. Returns 0; or 2 or 6 after a line on standard error. options_free in every case. */
int options_parse(int argc, char **argv, run_options *options);
void options_free(run_options *options);

/* Sets one option, by a name from the table, as the command line does; `stops` must have room for --stop. The same statuses. */
int options_set(run_options *options, const char *name, const char *value);

/* Prints what --help prints. */
void options_print_help(void);

/* Reads the ids of --tokens, "1,2,3", each from 0 to vocab - 1. *ids is malloc'd; returns as options_parse. */
int options_read_tokens(const char *text, int32_t vocab, int32_t **ids, size_t *n_ids);

#endif
