/* SPDX-License-Identifier: BSD-3-Clause
 * A model at work: prompts in, answers out. */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"
#include "report.h"
#include "stream.h"

static const struct {
  const char *text, *word; /* for people, and in JSON */
} stops[] = {
    [STOP_COUNT] = {"-n reached", "count"},
    [STOP_TOKEN] = {"stop token", "stop_token"},
    [STOP_TEXT] = {"stop string", "stop_string"},
    [STOP_FULL] = {"context full", "context_full"},
    [STOP_INTERRUPTED] = {"interrupted", "interrupted"},
    [STOP_CLOSED] = {"output closed", "output_closed"},
    [STOP_INPUT] = {"end of input", "end_of_input"},
};

const char *stop_text(stop_reason stop) {
  return stops[stop].text;
}

/* -- Opening -------------------------------------------------------------------------------------------------------- */

int session_open_tokenizer(session *s) {
  const run_options *options = s->options;
  const char *path = options->tokenizer;
  char *beside = NULL;
  if (path == NULL) {
    const char *model = options->model, *ending = ".tokenizer.bin";
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
    /* A session that goes on without a text needs none. */
    int only_ids = options->tokens != NULL || (options->load_session != NULL && options->prompt == NULL && options->file == NULL);
    if (!only_ids || options->chat) {
      status = report(ML_E_IO, "%s: there is no tokenizer beside the model: name one with -z, or give ids with --tokens", beside);
    } else if (options->n_stops > 0) {
      status = report(ML_E_ARG, "--stop needs a tokenizer: name one with -z");
    }
  } else {
    ml_error err;
    if (ml_tokenizer_open(path, s->info.vocab, &s->tokenizer, &err) != ML_OK) {
      status = report_error(&err);
    }
  }
  free(beside);
  if (status == 0 && options->chat) {
    status = chat_open(&s->chat, s->tokenizer, options->template_name, options->system);
  }
  return status;
}

static int load_state(session *s) {
  const char *path = s->options->load_session;
  char *bytes;
  size_t n_bytes;
  ml_error err;
  int status = read_file(path, &bytes, &n_bytes);
  if (status == 0 && ml_context_restore(s->context, bytes, n_bytes, &err) != ML_OK) {
    status = report((int)err.status, "%s: %s", path, err.text);
  }
  free(bytes);
  return status;
}

int session_open_context(session *s) {
  const run_options *options = s->options;
  ml_error err;
  if (ml_context_create(s->model, options->context, options->threads, &s->context, &err) != ML_OK) {
    return report_error(&err);
  }
  if (!options->quiet && options->threads > 1 && strcmp(ml_thread_model(), "1") == 0) {
    report(0, "this build has no threads: it runs 1, not %d", (int)options->threads);
  }
  if (options->dump_logits != NULL || options->perplexity != NULL) {
    s->rows = calloc((size_t)s->info.vocab, SESSION_ROWS * sizeof *s->rows);
    if (s->rows == NULL) {
      return report(ML_E_NOMEM, "not enough memory for the logits of %d positions, %d each", SESSION_ROWS, (int)s->info.vocab);
    }
  }
  s->seed = options->has_seed ? options->seed : os_random_seed();
  s->random = ml_rng_seed(s->seed);
  int status = options->load_session != NULL ? load_state(s) : 0;
  if (status == 0 && options->dump_logits != NULL) {
    status = output_file_open(&s->dump, "--dump-logits", options->dump_logits, options);
  }
  return status;
}

void session_close(session *s) {
  ids_free(&s->owed);
  ids_free(&s->ids);
  text_free(&s->text);
  free(s->rows);
  ml_context_free(s->context);
  ml_tokenizer_close(s->tokenizer);
  ml_model_close(s->model);
}

/* -- Running the model ---------------------------------------------------------------------------------------------- */

int session_eval_rows(session *s, const int32_t *ids, size_t n) {
  ml_error err;
  return ml_context_eval_logits(s->context, ids, n, s->rows, &err) == ML_OK ? 0 : report_error(&err);
}

/* With --dump-logits the logits of every id are written; the runtime is for little-endian machines: memory is what the file has. */
static int eval(session *s, const int32_t *ids, size_t n) {
  ml_error err;
  if (s->dump.file == NULL) {
    return ml_context_eval(s->context, ids, n, &err) == ML_OK ? 0 : report_error(&err);
  }
  int status = session_eval_rows(s, ids, n);
  return status == 0 ? output_file_write(&s->dump, s->rows, n * (size_t)s->info.vocab * sizeof *s->rows) : status;
}

/* Ids that are fed at once are faster, but neither Ctrl-C nor the progress should have to wait for them. */
#define FIRST_STRETCH 8
#define STRETCH_MS 100

int session_feed(session *s, const int32_t *ids, size_t n) {
  int show = n > 64 && !s->options->quiet && os_is_terminal(stderr);
  double shown = os_milliseconds();
  int status = 0;
  size_t done = 0, stretch = FIRST_STRETCH;
  while (done < n && status == 0) {
    if (os_interrupted()) {
      s->stop = STOP_INTERRUPTED;
      break;
    }
    size_t fed = stretch < n - done ? stretch : n - done;
    double start = os_milliseconds();
    status = eval(s, ids + done, fed);
    done += fed;
    stretch = os_milliseconds() - start < STRETCH_MS / 2 ? 2 * stretch : stretch / 2 + 1;
    stretch = s->dump.file != NULL && stretch > SESSION_ROWS ? SESSION_ROWS : stretch;
    if (show && os_milliseconds() - shown > 100) {
      shown = os_milliseconds();
      fprintf(stderr, "\rprompt: %zu of %zu tokens", done, n);
    }
  }
  if (show) {
    fputs(OS_CLEAR_LINE, stderr);
  }
  s->turn.prompt += done;
  return status;
}

/* What a failed write means: a reader that has gone ends the run quietly. */
static int output_failed(session *s, int error) {
  if (error == EPIPE) {
    s->stop = STOP_CLOSED;
    return 0;
  }
  return report(error == ENOMEM ? ML_E_NOMEM : ML_E_IO, "standard output: writing failed: %s", strerror(error));
}

int session_write_line(session *s, text_buffer *line) {
  text_add(line, "\n", 1);
  int error = line->failed ? ENOMEM : os_write(stdout, line->bytes, line->n);
  text_free(line);
  return error != 0 ? output_failed(s, error) : 0;
}

static int write_out(void *to, const char *bytes, size_t n) {
  session *s = to;
  if (s->output == OUTPUT_TEXT) {
    return os_write(stdout, bytes, n);
  }
  text_add(&s->text, bytes, n);
  return s->text.failed ? ENOMEM : 0;
}

/* The JSON line of a token, NULL = none, with the text that has become ready since `before`. */
static int write_token_line(session *s, const int32_t *id, size_t before) {
  text_buffer line = {0};
  if (id != NULL) {
    text_format(&line, "{\"token\": %" PRId32, *id);
  } else {
    text_format(&line, "{\"token\": null");
  }
  if (s->tokenizer != NULL) {
    text_add(&line, ", \"text\": ", 10);
    json_add_string(&line, s->text.n > before ? s->text.bytes + before : "", s->text.n - before);
  }
  text_add(&line, "}", 1);
  return session_write_line(s, &line);
}

/* Sends one generated id to the output. */
static int emit(session *s, text_stream *stream, int32_t previous, int32_t id) {
  char number[16];
  const char *piece = number;
  size_t n = 0, before = s->text.n;
  if (s->output != OUTPUT_TEXT) {
    int status = ids_add(&s->ids, id);
    if (status != 0) {
      return status;
    }
  }
  if (s->tokenizer != NULL) {
    piece = ml_tokenizer_piece(s->tokenizer, previous, id, &n);
  } else if (s->output == OUTPUT_TEXT) {
    n = (size_t)snprintf(number, sizeof number, "%s%" PRId32, stream->written > 0 ? " " : "", id);
  }
  int error = stream_push(stream, piece, n);
  if (error != 0) {
    return output_failed(s, error);
  }
  return s->output == OUTPUT_JSON ? write_token_line(s, &id, before) : 0;
}

/* Ends the output of an answer. */
static int end_output(session *s, text_stream *stream) {
  size_t before = s->text.n;
  int error = stream_end(stream);
  if (error == 0 && s->output == OUTPUT_TEXT && stream->written > 0) {
    error = os_write(stdout, "\n", 1);
  }
  if (error != 0) {
    return output_failed(s, error);
  }
  return s->output == OUTPUT_JSON && s->text.n > before ? write_token_line(s, NULL, before) : 0;
}

static int is_stop(const session *s, int32_t id) {
  return (s->options->chat && id == s->chat.end) || (s->tokenizer != NULL && ml_tokenizer_is_stop(s->tokenizer, id));
}

/* Generates behind the prompt. The last id generated is not fed back but owed: nothing asks for what follows it, and so the last position
 * of the context can still be used. */
static int decode(session *s, text_stream *stream) {
  const run_options *options = s->options;
  const ml_sampling sampling = {.temperature = options->temperature,
                                .top_p = options->top_p,
                                .top_k = options->top_k,
                                .min_p = options->min_p,
                                .repeat_penalty = options->repeat_penalty};
  ml_error err;
  int32_t held = ml_context_position(s->context);
  int32_t previous = held > 0 ? ml_context_tokens(s->context)[held - 1] : -1;
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
    s->turn.generated++;
    if (is_stop(s, id)) {
      s->stop = STOP_TOKEN;
      break;
    }
    status = emit(s, stream, previous, id);
    if (status != 0 || s->stop == STOP_CLOSED) {
      break;
    }
    int last = stream->stopped || count == options->count;
    int full = ml_context_position(s->context) == ml_context_capacity(s->context);
    if (last || full) {
      s->stop = stream->stopped ? STOP_TEXT : last ? STOP_COUNT : STOP_FULL;
      status = ids_add(&s->owed, id);
      break;
    }
    status = eval(s, &id, 1);
    s->turn.decoded++;
    previous = id;
  }
  return status;
}

/* In a chat nothing has been said but what has been printed: takes back the tokens of a stop string. `start` is the position behind the
 * prompt, `said` the bytes of the answer. */
static int cut_answer(session *s, int32_t start, uint64_t said) {
  int32_t held = ml_context_position(s->context), position = start;
  int32_t previous = ml_context_tokens(s->context)[start - 1];
  size_t n = 0;
  const char *piece = NULL;
  while (said > 0 && position <= held) {
    int32_t id = position < held ? ml_context_tokens(s->context)[position] : s->owed.ids[0];
    piece = ml_tokenizer_piece(s->tokenizer, previous, id, &n);
    if (n > said) {
      break;
    }
    said -= n;
    previous = id;
    position++;
  }
  ml_error err;
  s->owed.n = 0;
  if (position < held && ml_context_rewind(s->context, position, &err) != ML_OK) {
    return report_error(&err);
  }
  return said > 0 ? ids_add_text(&s->owed, s->tokenizer, piece, (size_t)said, ML_ENCODE_BEHIND) : 0;
}

static void add_counts(session *s) {
  s->total.prompt += s->turn.prompt;
  s->total.generated += s->turn.generated;
  s->total.decoded += s->turn.decoded;
  s->total.prompt_ms += s->turn.prompt_ms;
  s->total.decode_ms += s->turn.decode_ms;
}

/* The stop strings of the options and of the chat template, malloc'd. */
static const char **all_stops(const session *s, size_t *n) {
  const char **list = malloc((s->options->n_stops + 1) * sizeof *list);
  *n = s->options->n_stops;
  if (list != NULL) {
    if (*n > 0) {
      memcpy(list, s->options->stops, *n * sizeof *list);
    }
    if (s->options->chat && s->chat.stop != NULL) {
      list[(*n)++] = s->chat.stop;
    }
  }
  return list;
}

static int generate(session *s) {
  int32_t start = ml_context_position(s->context);
  size_t n_stops;
  const char **list = all_stops(s, &n_stops);
  if (list == NULL) {
    return report(ML_E_NOMEM, "not enough memory for %zu stop strings", s->options->n_stops);
  }
  text_stream stream;
  stream_begin(&stream, write_out, s, list, n_stops);
  stream.skip_spaces = s->options->chat && s->chat.skip_spaces;
  int status = decode(s, &stream);
  uint64_t skipped = stream.skipped;
  if (status == 0) {
    status = end_output(s, &stream);
  } else {
    stream_end(&stream);
    if (s->output == OUTPUT_TEXT && stream.written > 0) {
      os_write(stdout, "\n", 1); /* the error begins a line; it has been said already if this fails too */
    }
  }
  if (status == 0 && s->stop == STOP_TEXT && s->options->chat) {
    status = cut_answer(s, start, skipped + stream.written);
  }
  free(list);
  return status;
}

/* The JSON object that ends an answer. */
static int write_result(session *s) {
  text_buffer line = {0};
  text_add(&line, "{", 1);
  session_describe(s, &line);
  text_add(&line, ", ", 2);
  session_describe_model(s, &line);
  text_add(&line, "}", 1);
  return session_write_line(s, &line);
}

int session_answer(session *s, const id_list *prompt) {
  int32_t held = ml_context_position(s->context), capacity = ml_context_capacity(s->context);
  size_t n = s->owed.n + prompt->n;
  s->text.n = s->ids.n = 0;
  s->stop = STOP_COUNT;
  s->sampled = s->options->temperature > 0;
  memset(&s->turn, 0, sizeof s->turn);
  if (n > (size_t)(capacity - held)) {
    return report(ML_E_SHAPE, "the prompt has %zu tokens, and %d of the context's %d positions are free: shorten it%s", n,
                  (int)(capacity - held), (int)capacity, capacity < s->info.max_seq ? " or raise -c" : "");
  }
  double start = os_milliseconds();
  int status = session_feed(s, s->owed.ids, s->owed.n);
  if (status == 0 && s->stop != STOP_INTERRUPTED) {
    status = session_feed(s, prompt->ids, prompt->n);
  }
  s->turn.prompt_ms = os_milliseconds() - start;
  if (status == 0 && s->stop == STOP_INTERRUPTED) {
    /* As if it had not been said. */
    ml_error err;
    status = ml_context_rewind(s->context, held, &err) == ML_OK ? 0 : report_error(&err);
  } else if (status == 0) {
    s->owed.n = 0;
    start = os_milliseconds();
    status = generate(s);
    s->turn.decode_ms = os_milliseconds() - start;
  }
  add_counts(s);
  return status == 0 && s->output == OUTPUT_JSON && s->stop != STOP_CLOSED ? write_result(s) : status;
}

int session_prompt(const session *s, int first, const char *text, size_t n_bytes, id_list *prompt) {
  if (s->options->chat) {
    return chat_add_message(&s->chat, first, text, n_bytes, prompt);
  }
  int status = ids_add_text(prompt, s->tokenizer, text, n_bytes, ML_ENCODE_SPECIAL | (first ? ML_ENCODE_BOS : ML_ENCODE_BEHIND));
  if (status == 0 && prompt->n == 0 && first) {
    status = report(ML_E_ARG, "the prompt is empty, and with this tokenizer no token stands before a text: give some text");
  }
  return status;
}

/* -- The end -------------------------------------------------------------------------------------------------------- */

static int save_state(session *s) {
  size_t room = (size_t)(ml_context_capacity(s->context) - ml_context_position(s->context));
  int status = 0;
  if (s->owed.n > room && !s->options->quiet) {
    report(0, "--save-session: the context is full: the last token of the answer is not in the session");
  }
  for (size_t i = 0; i < s->owed.n && s->owed.n <= room && status == 0; i++) {
    status = eval(s, &s->owed.ids[i], 1);
  }
  if (status != 0) {
    return status;
  }
  s->owed.n = 0;
  uint64_t n_bytes = ml_context_state_bytes(s->context);
  void *bytes = n_bytes <= SIZE_MAX ? malloc((size_t)n_bytes) : NULL;
  if (bytes == NULL) {
    return report(ML_E_NOMEM, "not enough memory for a session of %" PRIu64 " bytes", n_bytes);
  }
  ml_error err;
  output_file file = {0};
  status = ml_context_save(s->context, bytes, n_bytes, &err) == ML_OK ? 0 : report_error(&err);
  if (status == 0) {
    status = output_file_open(&file, "--save-session", s->options->save_session, s->options);
  }
  status = status == 0 ? output_file_write(&file, bytes, (size_t)n_bytes) : status;
  free(bytes);
  return output_file_close(&file, status);
}

int session_finish(session *s, int status) {
  /* Also when it was interrupted, or a talk has filled the context: a larger one can go on with it. */
  int worth = s->context != NULL && (status == 0 || status == OS_INTERRUPTED_STATUS ||
                                     (status == ML_E_SHAPE && s->options->chat && ml_context_position(s->context) > 0));
  if (worth && s->options->save_session != NULL) {
    int saved = save_state(s);
    status = saved != 0 ? saved : status;
  }
  return output_file_close(&s->dump, status);
}

/* -- JSON ----------------------------------------------------------------------------------------------------------- */

void session_describe(const session *s, text_buffer *line) {
  if (s->tokenizer != NULL) {
    text_add(line, "\"text\": ", 8);
    json_add_string(line, s->text.n > 0 ? s->text.bytes : "", s->text.n);
    text_add(line, ", ", 2);
  }
  text_add(line, "\"tokens\": [", 11);
  for (size_t i = 0; i < s->ids.n; i++) {
    text_format(line, "%s%" PRId32, i > 0 ? ", " : "", s->ids.ids[i]);
  }
  text_format(line, "], \"stop\": \"%s\"", stops[s->stop].word);
  text_format(line, ", \"prompt_tokens\": %zu, \"generated_tokens\": %zu", s->turn.prompt, s->turn.generated);
  text_add(line, ", \"prompt_ms\": ", 15);
  json_add_number(line, s->turn.prompt_ms);
  text_add(line, ", \"decode_ms\": ", 15);
  json_add_number(line, s->turn.decode_ms);
  if (s->sampled) {
    text_format(line, ", \"seed\": %" PRIu64, s->seed);
  } else {
    text_add(line, ", \"seed\": null", 14);
  }
}

void session_describe_model(const session *s, text_buffer *line) {
  text_add(line, "\"load_ms\": ", 11);
  json_add_number(line, s->load_ms);
  text_format(line, ", \"threads\": %d, \"isa\": \"%s\", \"model\": ", (int)ml_context_threads(s->context), ml_isa_name());
  json_add_string(line, s->options->model, strlen(s->options->model));
}
