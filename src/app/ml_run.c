/* SPDX-License-Identifier: BSD-3-Clause
 * The command line: a model and a prompt in, text out.
 *
 * Text goes to standard output, everything else to standard error. The exit status is an ml_status, or 130 after Ctrl-C. Functions
 * here return 0 to go on, or an exit status after a line on standard error. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/cpu.h"
#include "../core/isa_check.h"
#include "../include/legacyml.h"
#include "batch.h"
#include "main_guard.h"
#include "options.h"
#include "os.h"
#include "perplexity.h"
#include "report.h"
#include "session.h"

/* A build that this CPU runs better than this one, or NULL. */
static const char *better_build(void) {
  ml_cpu_facts facts;
  ml_cpu_read(&facts);
  const char *best = ml_isa_best(&facts);
  return best != NULL && strcmp(best, ml_isa_name()) != 0 ? best : NULL;
}

static void print_statistics(const session *s) {
  const run_options *options = s->options;
  const run_counts *c = &s->total;
  fprintf(stderr, "load: %.1f ms\n", s->load_ms);
  fprintf(stderr, "prompt: %zu tokens, %.1f ms, %.1f tok/s\n", c->prompt, c->prompt_ms,
          c->prompt_ms > 0 ? (double)c->prompt * 1e3 / c->prompt_ms : 0.0);
  if (options->perplexity == NULL) {
    fprintf(stderr, "decode: %zu tokens, %.1f ms, %.1f tok/s\n", c->generated, c->decode_ms,
            c->decode_ms > 0 ? (double)c->decoded * 1e3 / c->decode_ms : 0.0);
  }
  fprintf(stderr, "threads: %d, isa: %s\n", (int)ml_context_threads(s->context), ml_isa_name());
  if (better_build() != NULL) {
    fprintf(stderr, "faster here: conda install legacyml-%s\n", better_build());
  }
  int many = options->perplexity != NULL || options->batch != NULL;
  if (!many && options->temperature > 0) {
    fprintf(stderr, "seed: %" PRIu64 "\n", s->seed);
  }
  if (!many || s->stop == STOP_INTERRUPTED) {
    fprintf(stderr, "stop: %s\n", stop_text(s->stop));
  }
}

/* -- Prompts and talks ----------------------------------------------------------------------------------------------- */

/* One message a line, until the input ends or the context is full. What has been said stays in the context. */
static int talk(session *s) {
  int show = os_is_terminal(stdin) && os_is_terminal(stderr), status = 0;
  char *line = NULL;
  size_t capacity = 0;
  while (status == 0 && s->stop != STOP_FULL && s->stop != STOP_CLOSED) {
    if (show && !s->options->quiet) {
      fputs("> ", stderr);
    }
    long n = os_read_line(stdin, &line, &capacity);
    if (n < 0 && os_interrupted() && !feof(stdin)) {
      if (!show) { /* nobody is there to go on with the talk */
        s->stop = STOP_INTERRUPTED;
        status = OS_INTERRUPTED_STATUS;
        break;
      }
      os_clear_interrupt();
      clearerr(stdin);
      fputc('\n', stderr);
      continue;
    }
    if (n < 0) {
      if (show) {
        fputc('\n', stderr);
      }
      s->stop = STOP_INPUT;
      status = ferror(stdin) ? report(ML_E_IO, "standard input: reading failed: %s", strerror(errno)) : 0;
      break;
    }
    n -= n > 0 && line[n - 1] == '\n';
    n -= n > 0 && line[n - 1] == '\r';
    if (n == 0) {
      continue;
    }
    id_list turn = {0};
    status = session_prompt(s, ml_context_position(s->context) == 0, line, (size_t)n, &turn);
    status = status == 0 ? session_answer(s, &turn) : status;
    ids_free(&turn);
    if (s->stop == STOP_INTERRUPTED) {
      os_clear_interrupt(); /* it has done its work: the next line is read */
    }
    if (status == 0 && s->stop == STOP_INTERRUPTED && !show) {
      status = OS_INTERRUPTED_STATUS;
    }
    if (status == 0 && s->stop == STOP_FULL) {
      status = report(ML_E_SHAPE, "the context is full, %d positions: the chat ends here; raise -c for a longer one",
                      (int)ml_context_capacity(s->context));
    }
    if (status == 0 && !s->options->quiet && s->output == OUTPUT_TEXT && s->stop != STOP_TOKEN && s->stop != STOP_CLOSED) {
      fprintf(stderr, "stop: %s\n", stop_text(s->stop));
    }
  }
  free(line);
  return status;
}

/* -p, -f or --tokens, or a session that goes on without a prompt. `text` is that of -p or -f. */
static int answer(session *s, const char *text, size_t n_bytes) {
  id_list prompt = {0};
  int status = 0;
  if (s->options->tokens != NULL) {
    status = options_read_tokens(s->options->tokens, s->info.vocab, &prompt.ids, &prompt.n);
  } else if (text != NULL) {
    status = session_prompt(s, ml_context_position(s->context) == 0, text, n_bytes, &prompt);
  }
  status = status == 0 ? session_answer(s, &prompt) : status;
  ids_free(&prompt);
  return status == 0 && s->stop == STOP_INTERRUPTED ? OS_INTERRUPTED_STATUS : status;
}

/* Everything that needs a context. `text` is the prompt of -p or -f. */
static int run_prompts(session *s, const char *text, size_t n_bytes) {
  const run_options *options = s->options;
  double start = os_milliseconds();
  s->output = options->json ? OUTPUT_JSON : OUTPUT_TEXT;
  int status = session_open_tokenizer(s);
  status = status == 0 ? session_open_context(s) : status;
  s->load_ms += os_milliseconds() - start;
  if (status == 0) {
    int talks = options->chat && text == NULL;
    status = options->batch != NULL        ? run_batch(s)
             : options->perplexity != NULL ? run_perplexity(s)
             : talks                       ? talk(s)
                                           : answer(s, text, n_bytes);
  }
  return session_finish(s, status);
}

/* -- Facts ---------------------------------------------------------------------------------------------------------- */

/* Ends what prints facts on standard output. */
static int finish_output(void) {
  int error = os_write(stdout, "", 0);
  if (error != 0 && error != EPIPE) {
    return report(ML_E_IO, "standard output: writing failed: %s", strerror(error));
  }
  return 0;
}

static int print_version(void) {
  printf("ml_run %s\nisa: %s\nthreads: %s\n%s", ml_version(), ml_isa_name(), ml_thread_model(), ml_isa_bindings());
  return finish_output();
}

/* The guard has let this build through: it fits. */
static int print_cpu(void) {
  printf("%s: this CPU runs this build\n", ml_isa_name());
  if (better_build() != NULL) {
    printf("%s: this CPU runs this build too, and it is faster: conda install legacyml-%s\n", better_build(), better_build());
  }
  return finish_output();
}

static int print_info(const session *s) {
  static const char *const types[] = {[1] = "Q8_0", [2] = "Q4_0"};
  const ml_model_info info = s->info;
  printf("file: %s\nbytes: %" PRIu64 "\nparameters: %" PRIu64 "\n", s->options->model, info.file_bytes, info.parameters);
  printf("dim: %d\nn_layers: %d\nn_heads: %d\nn_kv_heads: %d\nhead_dim: %d\nkv_dim: %d\nhidden_dim: %d\nvocab: %d\nmax_seq: %d\n",
         (int)info.dim, (int)info.n_layers, (int)info.n_heads, (int)info.n_kv_heads, (int)info.head_dim, (int)info.kv_dim,
         (int)info.hidden_dim, (int)info.vocab, (int)info.max_seq);
  printf("rope_theta: %.9g\nrope_factors: %s\nnorm_eps: %.9g\n", (double)info.rope_theta, info.rope_factors ? "yes" : "no",
         (double)info.norm_eps);
  printf("weights: %s\nembedding: %s\nclassifier: %s\n", types[info.weight_type], types[info.embedding_type],
         info.shared_classifier ? "the embedding" : "its own");
  return finish_output();
}

static int run_model(const run_options *options, const char *text, size_t n_bytes) {
  session s = {.options = options};
  ml_error err;
  uint32_t flags = (options->no_mmap ? ML_MODEL_NO_MMAP : 0) | (options->verify ? ML_MODEL_VERIFY : 0);
  double start = os_milliseconds();
  int status = 0;
  if (ml_model_open(options->model, flags, &s.model, &err) != ML_OK) {
    return report_error(&err);
  }
  ml_model_get_info(s.model, &s.info);
  s.load_ms = os_milliseconds() - start;
  int prompts = text != NULL || options->tokens != NULL || options->chat || options->batch != NULL || options->perplexity != NULL ||
                options->load_session != NULL;
  if (options->info) {
    status = print_info(&s);
  } else if (prompts) {
    status = run_prompts(&s, text, n_bytes);
  } else if (options->verify && !options->quiet) {
    fprintf(stderr, "verify: %s keeps the rules of the format\n", options->model);
  }
  /* The lines of --json have the statistics. */
  if (s.context != NULL && !options->quiet && !options->json && s.stop != STOP_CLOSED && (status == 0 || status == OS_INTERRUPTED_STATUS)) {
    print_statistics(&s);
  }
  session_close(&s);
  return status;
}

int ml_main(int argc, char **argv) {
  os_start();
  if (argc < 2) {
    return report(ML_E_ARG, "no arguments given: ml_run MODEL.mlb -p TEXT (ml_run --help lists the options)");
  }
  run_options options;
  char *text = NULL; /* of -f */
  size_t n_bytes = 0;
  int status = options_parse(argc, argv, &options);
  if (status == 0 && options.help) {
    options_print_help();
    status = finish_output();
  } else if (status == 0 && options.version) {
    status = print_version();
  } else if (status == 0 && options.check_cpu) {
    status = print_cpu();
  } else if (status == 0) {
    status = options.file != NULL ? read_file(options.file, &text, &n_bytes) : 0;
    if (status == 0 && options.prompt != NULL) {
      n_bytes = strlen(options.prompt);
    }
    status = status == 0 ? run_model(&options, text != NULL ? text : options.prompt, n_bytes) : status;
  }
  free(text);
  options_free(&options);
  return status;
}
