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
#include "chat.h"
#include "main_guard.h"
#include "options.h"
#include "os.h"
#include "report.h"
#include "stream.h"

typedef enum { STOP_COUNT, STOP_TOKEN, STOP_TEXT, STOP_FULL, STOP_INTERRUPTED, STOP_CLOSED, STOP_INPUT } stop_reason;

static const char *const stop_texts[] = {
    [STOP_COUNT] = "-n reached",        [STOP_TOKEN] = "stop token",     [STOP_TEXT] = "stop string",   [STOP_FULL] = "context full",
    [STOP_INTERRUPTED] = "interrupted", [STOP_CLOSED] = "output closed", [STOP_INPUT] = "end of input",
};

/* The logits file: rows go to a temporary file beside it, which takes its name when all went well. */
typedef struct {
  const char *path; /* NULL = no logits are wanted */
  char *temporary;  /* NULL = `path` is a device, a pipe or a link and is written directly */
  FILE *file;
  size_t row_size; /* floats */
} logits_dump;

typedef struct {
  const run_options *options;
  ml_model *model;
  ml_model_info info;
  ml_tokenizer *tokenizer; /* NULL = ids are printed */
  ml_context *context;
  logits_dump dump;
  uint64_t seed, random;
  int32_t end;     /* an id that ends an answer although the tokenizer does not say so; -1 = none */
  int32_t pending; /* the last id generated, if it is part of the text and not in the context yet; -1 = none */
  stop_reason stop;
  double load_ms, prompt_ms, decode_ms;
  size_t prompt_tokens, generated_tokens, decoded_tokens; /* decoded: generated and fed back */
} session;

/* -- Logits file ---------------------------------------------------------------------------------------------------- */

static int dump_open(logits_dump *dump, const run_options *options, int32_t vocab) {
  const char *path = options->dump_logits;
  if (path == NULL) {
    return 0;
  }
  if (os_is_same(path, options->model) || (options->tokenizer != NULL && os_is_same(path, options->tokenizer))) {
    return report(ML_E_ARG, "--dump-logits: %s is the model or the tokenizer itself; give another file", path);
  }
  dump->path = path;
  dump->row_size = (size_t)vocab;
  if (!os_is_special(path)) {
    size_t size = strlen(path) + 32;
    dump->temporary = malloc(size);
    if (dump->temporary == NULL) {
      return report(ML_E_NOMEM, "not enough memory for a file name of %zu bytes", size);
    }
    snprintf(dump->temporary, size, "%s.%ld.part", path, os_process());
  }
  dump->file = os_open(dump->temporary != NULL ? dump->temporary : path, "wb");
  if (dump->file == NULL) {
    return report(ML_E_IO, "%s: cannot be written: %s", path, strerror(errno));
  }
  return 0;
}

static int dump_failed(const logits_dump *dump) {
  return report(ML_E_IO, "%s: writing failed: %s", dump->path, strerror(errno));
}

/* Writes the logits of the token processed last. The runtime is for little-endian machines: memory is what the file has. */
static int dump_row(session *s) {
  ml_error err;
  const float *logits;
  if (ml_context_logits(s->context, &logits, &err) != ML_OK) {
    return report_error(&err);
  }
  if (fwrite(logits, sizeof *logits, s->dump.row_size, s->dump.file) != s->dump.row_size) {
    return dump_failed(&s->dump);
  }
  return 0;
}

/* Ends the file: keeps it if `status` is 0, leaves nothing otherwise. Returns the status of the run. */
static int dump_close(logits_dump *dump, int status) {
  if (dump->file != NULL) {
    if (fclose(dump->file) != 0 && status == 0) {
      status = dump_failed(dump);
    }
    if (dump->temporary != NULL && status == 0 && os_rename(dump->temporary, dump->path) != 0) {
      status = dump_failed(dump);
    }
    if (dump->temporary != NULL && status != 0) {
      os_remove(dump->temporary);
    }
  }
  free(dump->temporary);
  memset(dump, 0, sizeof *dump);
  return status;
}

/* -- Running the model ---------------------------------------------------------------------------------------------- */

static int eval(session *s, int32_t id) {
  ml_error err;
  if (ml_context_eval(s->context, &id, 1, &err) != ML_OK) {
    return report_error(&err);
  }
  return s->dump.file != NULL ? dump_row(s) : 0;
}

/* Processes a prompt, one token at a time so that Ctrl-C acts at once, and says on a terminal how far a long one is. Sets stop if it
 * was interrupted. */
static int feed_prompt(session *s, const id_list *prompt) {
  int show = prompt->n > 64 && !s->options->quiet && os_is_terminal(stderr);
  double start = os_milliseconds(), shown = start;
  int status = 0;
  size_t done = 0;
  while (done < prompt->n && status == 0) {
    if (os_interrupted()) {
      s->stop = STOP_INTERRUPTED;
      break;
    }
    status = eval(s, prompt->ids[done++]);
    if (show && os_milliseconds() - shown > 100) {
      shown = os_milliseconds();
      fprintf(stderr, "\rprompt: %zu of %zu tokens", done, prompt->n);
    }
  }
  if (show) {
    fputs(OS_CLEAR_LINE, stderr);
  }
  s->prompt_tokens += done;
  s->prompt_ms += os_milliseconds() - start;
  return status;
}

/* Sends one generated id to the output. */
static int emit(session *s, text_stream *stream, int32_t previous, int32_t id) {
  char number[16];
  const char *piece = number;
  size_t n = 0;
  if (s->tokenizer != NULL) {
    piece = ml_tokenizer_piece(s->tokenizer, previous, id, &n);
  } else {
    n = (size_t)snprintf(number, sizeof number, "%s%" PRId32, stream->written > 0 ? " " : "", id);
  }
  return stream_push(stream, piece, n);
}

/* What a failed write means: a reader that has gone ends the run quietly. */
static int output_failed(session *s, int error) {
  if (error == EPIPE) {
    s->stop = STOP_CLOSED;
    return 0;
  }
  return report(error == ENOMEM ? ML_E_NOMEM : ML_E_IO, "standard output: writing failed: %s", strerror(error));
}

static int is_stop(const session *s, int32_t id) {
  return id == s->end || (s->tokenizer != NULL && ml_tokenizer_is_stop(s->tokenizer, id));
}

/* Generates behind the prompt, whose last id is `previous`. The last id generated is not fed back: nothing asks for what follows it,
 * and so the last position of the context can still be used. */
static int decode(session *s, text_stream *stream, int32_t previous) {
  const run_options *options = s->options;
  const ml_sampling sampling = {.temperature = options->temperature, .top_p = options->top_p};
  ml_error err;
  int status = 0;
  s->stop = STOP_COUNT;
  for (int32_t count = 0; count < options->count && status == 0;) {
    if (os_interrupted()) {
      s->stop = STOP_INTERRUPTED;
      break;
    }
    int32_t id;
    if (ml_context_sample(s->context, &sampling, &s->random, &id, &err) != ML_OK) {
      return report_error(&err);
    }
    count++;
    s->generated_tokens++;
    if (is_stop(s, id)) {
      s->stop = STOP_TOKEN;
      break;
    }
    s->pending = id;
    int error = emit(s, stream, previous, id);
    if (error != 0) {
      return output_failed(s, error);
    }
    if (stream->stopped) {
      s->stop = STOP_TEXT;
      break;
    }
    if (count < options->count) {
      if (ml_context_position(s->context) == ml_context_capacity(s->context)) {
        s->stop = STOP_FULL;
        break;
      }
      status = eval(s, id);
      s->pending = -1;
      s->decoded_tokens++;
      previous = id;
    }
  }
  return status;
}

/* Processes a prompt and prints what the model makes of it. `stop` says why it ended. */
static int generate(session *s, const id_list *prompt) {
  const run_options *options = s->options;
  int32_t held = ml_context_position(s->context), capacity = ml_context_capacity(s->context);
  if (prompt->n > (size_t)(capacity - held)) {
    return report(ML_E_SHAPE, "the prompt has %zu tokens, and %d of the context's %d positions are free: shorten it%s", prompt->n,
                  (int)(capacity - held), (int)capacity, capacity < s->info.max_seq ? " or raise -c" : "");
  }
  s->stop = STOP_COUNT;
  int status = feed_prompt(s, prompt);
  if (status == 0 && s->stop == STOP_INTERRUPTED) {
    /* As if it had not been said. */
    ml_error err;
    return ml_context_rewind(s->context, held, &err) == ML_OK ? 0 : report_error(&err);
  }
  if (status != 0) {
    return status;
  }
  s->pending = -1;
  text_stream stream;
  stream_begin(&stream, stdout, options->stops, options->n_stops);
  double start = os_milliseconds();
  status = decode(s, &stream, prompt->ids[prompt->n - 1]);
  s->decode_ms += os_milliseconds() - start;
  int error = stream_end(&stream);
  return error != 0 && status == 0 ? output_failed(s, error) : status;
}

/* A build that this CPU runs better than this one, or NULL. */
static const char *better_build(void) {
  ml_cpu_facts facts;
  ml_cpu_read(&facts);
  const char *best = ml_isa_best(&facts);
  return best != NULL && strcmp(best, ml_isa_name()) != 0 ? best : NULL;
}

static void print_statistics(const session *s) {
  fprintf(stderr, "load: %.1f ms\n", s->load_ms);
  fprintf(stderr, "prompt: %zu tokens, %.1f ms, %.1f tok/s\n", s->prompt_tokens, s->prompt_ms,
          s->prompt_ms > 0 ? (double)s->prompt_tokens * 1e3 / s->prompt_ms : 0.0);
  fprintf(stderr, "decode: %zu tokens, %.1f ms, %.1f tok/s\n", s->generated_tokens, s->decode_ms,
          s->decode_ms > 0 ? (double)s->decoded_tokens * 1e3 / s->decode_ms : 0.0);
  fprintf(stderr, "threads: %d, isa: %s\n", (int)ml_context_threads(s->context), ml_isa_name());
  if (better_build() != NULL) {
    fprintf(stderr, "faster here: conda install legacyml-%s\n", better_build());
  }
  if (s->options->temperature > 0) {
    fprintf(stderr, "seed: %" PRIu64 "\n", s->seed);
  }
  fprintf(stderr, "stop: %s\n", stop_texts[s->stop]);
}

/* -- Prompt and chat ------------------------------------------------------------------------------------------------ */

/* Reads a whole file, byte for byte, into *text (malloc'd). "-" is standard input. */
static int read_file(const char *path, char **text, size_t *n_bytes) {
  int is_stdin = strcmp(path, "-") == 0;
  const char *name = is_stdin ? "standard input" : path;
  FILE *file = is_stdin ? stdin : os_open(path, "rb");
  size_t capacity = 0, n = 0, got = 0;
  int status = 0;
  *text = NULL;
  if (file == NULL) {
    return report(ML_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
  }
  do {
    if (n == capacity) {
      capacity = capacity > 0 ? 2 * capacity : 4096;
      char *larger = realloc(*text, capacity);
      if (larger == NULL) {
        status = report(ML_E_NOMEM, "not enough memory for %s, %zu bytes so far", name, n);
        break;
      }
      *text = larger;
    }
    got = os_read(file, *text + n, capacity - n);
    n += got;
    if (os_interrupted() && (got == 0 || ferror(file))) {
      status = OS_INTERRUPTED_STATUS;
    } else if (ferror(file)) {
      status = report(ML_E_IO, "%s: reading failed: %s", name, strerror(errno));
    }
  } while (status == 0 && got > 0 && !feof(file));
  if (!is_stdin) {
    fclose(file);
  }
  *n_bytes = n;
  return status;
}

/* One message a line, until the input ends or the context is full. What has been said stays in the context. */
static int talk(session *s, const chat_template *chat) {
  int show = os_is_terminal(stdin) && os_is_terminal(stderr), status = 0;
  char *line = NULL;
  size_t capacity = 0;
  while (status == 0 && s->stop != STOP_FULL && s->stop != STOP_CLOSED) {
    if (show) {
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
    int32_t held = ml_context_position(s->context);
    id_list turn = {0};
    status = s->pending >= 0 ? ids_add(&turn, s->pending) : 0;
    status = status == 0 ? chat_add_message(chat, held == 0, line, (size_t)n, &turn) : status;
    status = status == 0 ? generate(s, &turn) : status;
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
    if (status == 0 && !s->options->quiet && s->stop != STOP_TOKEN && s->stop != STOP_CLOSED) {
      fprintf(stderr, "stop: %s\n", stop_texts[s->stop]);
    }
  }
  free(line);
  return status;
}

/* The prompt of -p, -f or --tokens, as a message in --chat. */
static int make_prompt(const session *s, const chat_template *chat, const char *text, size_t n_bytes, id_list *prompt) {
  if (s->options->tokens != NULL) {
    return options_read_tokens(s->options->tokens, s->info.vocab, &prompt->ids, &prompt->n);
  }
  if (s->options->chat) {
    return chat_add_message(chat, 1, text, n_bytes, prompt);
  }
  int status = ids_add_text(prompt, s->tokenizer, text, n_bytes, ML_ENCODE_BOS | ML_ENCODE_SPECIAL);
  if (status == 0 && prompt->n == 0) {
    status = report(ML_E_ARG, "the prompt is empty, and with this tokenizer no token stands before a text: give some text");
  }
  return status;
}

/* Opens the tokenizer, if there is one and it is needed. */
static int open_tokenizer(session *s) {
  const char *path = s->options->tokenizer;
  char *beside = NULL;
  if (path == NULL) {
    const char *model = s->options->model, *ending = ".tokenizer.bin";
    size_t n = strlen(model);
    n -= n >= 4 && strcmp(model + n - 4, ".mlb") == 0 ? 4 : 0;
    beside = malloc(n + strlen(ending) + 1);
    if (beside == NULL) {
      return report(ML_E_NOMEM, "not enough memory for a file name of %zu bytes", n);
    }
    memcpy(beside, model, n);
    strcpy(beside + n, ending);
    path = beside;
  }
  int status = 0;
  if (beside != NULL && os_is_missing(beside)) {
    if (s->options->tokens == NULL) {
      status = report(ML_E_IO, "%s: there is no tokenizer beside the model: name one with -z, or give ids with --tokens", beside);
    } else if (s->options->n_stops > 0) {
      status = report(ML_E_ARG, "--stop needs a tokenizer: name one with -z");
    }
  } else {
    ml_error err;
    if (ml_tokenizer_open(path, s->info.vocab, &s->tokenizer, &err) != ML_OK) {
      status = report_error(&err);
    }
  }
  free(beside);
  return status;
}

static int open_context(session *s) {
  const run_options *options = s->options;
  ml_error err;
  if (ml_context_create(s->model, options->context, options->threads, &s->context, &err) != ML_OK) {
    return report_error(&err);
  }
  if (options->threads > 1 && strcmp(ml_thread_model(), "1") == 0) {
    report(0, "this build has no threads: it runs 1, not %d", (int)options->threads);
  }
  s->seed = options->has_seed ? options->seed : os_random_seed();
  s->random = ml_rng_seed(s->seed);
  return 0;
}

/* Everything that needs a tokenizer or a context. `text` is the prompt of -p or -f. */
static int run_prompt(session *s, const char *text, size_t n_bytes) {
  const run_options *options = s->options;
  double start = os_milliseconds();
  chat_template chat = {0};
  id_list prompt = {0};
  int one_turn = text != NULL || options->tokens != NULL;
  int status = open_tokenizer(s);
  if (status == 0 && options->chat) {
    status = chat_open(&chat, s->tokenizer, options->template_name, options->system);
    s->end = status == 0 ? chat.end : -1;
  }
  if (status == 0 && one_turn) {
    status = make_prompt(s, &chat, text, n_bytes, &prompt);
  }
  status = status == 0 ? open_context(s) : status;
  status = status == 0 ? dump_open(&s->dump, options, s->info.vocab) : status;
  s->load_ms += os_milliseconds() - start;
  if (status == 0) {
    status = one_turn ? generate(s, &prompt) : talk(s, &chat);
    if (status == 0 && one_turn && s->stop == STOP_INTERRUPTED) {
      status = OS_INTERRUPTED_STATUS;
    }
  }
  status = dump_close(&s->dump, status);
  ids_free(&prompt);
  return status;
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
  session s = {.options = options, .end = -1, .pending = -1};
  ml_error err;
  uint32_t flags = (options->no_mmap ? ML_MODEL_NO_MMAP : 0) | (options->verify ? ML_MODEL_VERIFY : 0);
  double start = os_milliseconds();
  int status = 0;
  if (ml_model_open(options->model, flags, &s.model, &err) != ML_OK) {
    return report_error(&err);
  }
  ml_model_get_info(s.model, &s.info);
  s.load_ms = os_milliseconds() - start;
  int prompts = text != NULL || options->tokens != NULL || options->chat;
  if (options->info) {
    status = print_info(&s);
  }
  if (prompts) {
    status = run_prompt(&s, text, n_bytes);
  } else if (options->verify && !options->quiet && status == 0) {
    fprintf(stderr, "verify: %s keeps the rules of the format\n", options->model);
  }
  if (s.context != NULL && !options->quiet && s.stop != STOP_CLOSED && (status == 0 || status == OS_INTERRUPTED_STATUS)) {
    print_statistics(&s);
  }
  ml_context_free(s.context);
  ml_tokenizer_close(s.tokenizer);
  ml_model_close(s.model);
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
