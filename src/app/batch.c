/* SPDX-License-Identifier: BSD-3-Clause
 * Many prompts for one model. */
#include "batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"
#include "report.h"

/* The numbers that a line may set, and the options that they are. */
static const struct {
  const char *key, *option;
} numbers[] = {
    {"n", "-n"},          {"temp", "--temp"},   {"top_p", "--top-p"},
    {"top_k", "--top-k"}, {"min_p", "--min-p"}, {"repeat_penalty", "--repeat-penalty"},
    {"seed", "--seed"},
};

#define N_NUMBERS (sizeof numbers / sizeof numbers[0])
enum { KEY_PROMPT = N_NUMBERS, KEY_SYSTEM, KEY_STOP, N_KEYS };
static const char *const others[] = {"prompt", "system", "stop"};

/* One line: texts point into it. */
typedef struct {
  run_options options;
  const char **stops; /* malloc'd once the line has its own */
  const char *prompt;
  size_t n_prompt;
} request;

/* Reads a string for an option, which ends at its first NUL. */
static int read_text(json_reader *reader, const char *key, const char **text) {
  char *bytes;
  size_t n;
  if (!json_string(reader, &bytes, &n)) {
    return 0;
  }
  if (strlen(bytes) < n) {
    return report(ML_E_ARG, "\"%s\" has a NUL character at byte %zu, which only a prompt may have", key, strlen(bytes) + 1);
  }
  *text = bytes;
  return 0;
}

static int read_stop(json_reader *reader, request *r, size_t *capacity) {
  const char *text = NULL;
  int status = read_text(reader, "stop", &text);
  if (status != 0 || text == NULL) {
    return status;
  }
  if (r->options.n_stops == *capacity) {
    *capacity = 2 * *capacity + 4;
    const char **larger = realloc(r->stops, *capacity * sizeof *larger);
    if (larger == NULL) {
      return report(ML_E_NOMEM, "not enough memory for %zu stop strings", *capacity);
    }
    r->stops = larger;
    r->options.stops = larger;
  }
  return options_set(&r->options, "--stop", text);
}

static int read_stops(json_reader *reader, request *r) {
  size_t capacity = 0, count = 0;
  int status = 0;
  r->options.n_stops = 0;
  if (json_peek(reader) != JSON_ARRAY) {
    return read_stop(reader, r, &capacity);
  }
  json_open(reader, '[');
  while (status == 0 && json_more(reader, ']', &count)) {
    status = read_stop(reader, r, &capacity);
  }
  return status;
}

static int read_value(json_reader *reader, size_t key, request *r) {
  if (key == KEY_PROMPT) {
    char *bytes;
    if (json_string(reader, &bytes, &r->n_prompt)) {
      r->prompt = bytes;
    }
    return 0;
  }
  if (key == KEY_SYSTEM) {
    if (!r->options.chat) {
      return report(ML_E_ARG, "\"system\" needs --chat");
    }
    return read_text(reader, "system", &r->options.system);
  }
  if (key == KEY_STOP) {
    return read_stops(reader, r);
  }
  char number[64];
  return json_number(reader, number, sizeof number) ? options_set(&r->options, numbers[key].option, number) : 0;
}

static size_t find_key(const char *name, size_t n) {
  size_t key = 0;
  for (; key < N_KEYS; key++) {
    const char *known = key < N_NUMBERS ? numbers[key].key : others[key - N_NUMBERS];
    if (strlen(known) == n && memcmp(known, name, n) == 0) {
      break;
    }
  }
  return key;
}

static int read_request(char *line, size_t n_bytes, request *r) {
  json_reader reader;
  unsigned seen = 0;
  size_t count = 0;
  int status = 0;
  json_begin(&reader, line, n_bytes);
  json_open(&reader, '{');
  while (status == 0 && json_more(&reader, '}', &count)) {
    char *name;
    size_t n;
    if (json_key(&reader, &name, &n)) {
      size_t key = find_key(name, n);
      if (key == N_KEYS) {
        return report(ML_E_ARG,
                      "unknown key \"%.40s\": known are prompt, system, stop, n, temp, top_p, top_k, min_p, repeat_penalty and seed", name);
      }
      if ((seen >> key & 1) != 0) {
        return report(ML_E_ARG, "the key \"%s\" stands there twice", name);
      }
      seen |= 1u << key;
      status = read_value(&reader, key, r);
    }
  }
  if (status == 0 && !json_end(&reader)) {
    status = report(ML_E_FORMAT, "%s", reader.error);
  }
  if (status == 0 && r->prompt == NULL) {
    status = report(ML_E_ARG, "there is no \"prompt\"");
  }
  return status;
}

/* Forgets what the prompt does not begin with, and takes from it what is held: the same ids in the same places have the same keys and
 * values. */
static int reuse(session *s, id_list *prompt) {
  const int32_t *held = ml_context_tokens(s->context);
  size_t n = (size_t)ml_context_position(s->context), same = 0;
  while (same < n && same + 1 < prompt->n && held[same] == prompt->ids[same]) {
    same++;
  }
  ml_error err;
  if (ml_context_rewind(s->context, (int32_t)same, &err) != ML_OK) {
    return report_error(&err);
  }
  prompt->n -= same;
  memmove(prompt->ids, prompt->ids + same, prompt->n * sizeof *prompt->ids);
  return 0;
}

static int answer_line(session *s, char *line, size_t n_bytes, uint64_t seed) {
  const run_options *options = s->options;
  const char *system = s->chat.system;
  request r = {.options = *options};
  id_list prompt = {0};
  ml_error err;
  r.options.has_seed = 0;
  int status = read_request(line, n_bytes, &r);
  s->options = &r.options;
  if (r.options.system != options->system) {
    s->chat.system = r.options.system;
  }
  s->seed = r.options.has_seed ? r.options.seed : seed;
  s->random = ml_rng_seed(s->seed);
  s->owed.n = 0;
  if (status == 0) {
    /* A prompt is made for an empty context, whatever it holds. */
    status = session_prompt(s, 1, r.prompt, r.n_prompt, &prompt);
  }
  if (status == 0 && prompt.n > (size_t)ml_context_capacity(s->context)) {
    status = ml_context_rewind(s->context, 0, &err) == ML_OK ? 0 : report_error(&err); /* for the message */
  } else if (status == 0) {
    status = reuse(s, &prompt);
  }
  status = status == 0 ? session_answer(s, &prompt) : status;
  s->options = options;
  s->chat.system = system;
  ids_free(&prompt);
  free(r.stops);
  return status;
}

/* Leaves out the spaces at the end. */
static size_t trimmed(const char *line, size_t n) {
  while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r' || line[n - 1] == '\n')) {
    n--;
  }
  return n;
}

int run_batch(session *s) {
  const char *path = s->options->batch;
  int is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : os_open(path, "rb");
  if (file == NULL) {
    return report(ML_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
  }
  const uint64_t seed = s->seed;
  char *line = NULL;
  size_t capacity = 0;
  int first = 0, status = 0;
  s->output = OUTPUT_COLLECT;
  for (uint64_t number = 1; status == 0 && s->stop != STOP_CLOSED; number++) {
    long n = os_read_line(file, &line, &capacity);
    if (n < 0) {
      status = os_interrupted() ? OS_INTERRUPTED_STATUS : 0;
      if (status == 0 && !feof(file)) {
        status = report(ML_E_IO, "%s: reading failed: %s", is_stdin ? "standard input" : path, strerror(errno));
      }
      break;
    }
    size_t n_bytes = trimmed(line, (size_t)n);
    if (n_bytes == 0) {
      continue;
    }
    char sentence[1024] = "";
    text_buffer out = {0};
    report_to(sentence, sizeof sentence);
    int failed = answer_line(s, line, n_bytes, seed + number - 1);
    report_to(NULL, 0);
    text_format(&out, "{\"line\": %" PRIu64 ", ", number);
    if (failed != 0) {
      text_add(&out, "\"error\": ", 9);
      json_add_string(&out, sentence, strlen(sentence));
      text_format(&out, ", \"status\": %d}", failed);
    } else {
      session_describe(s, &out);
      text_add(&out, "}", 1);
    }
    first = first == 0 ? failed : first;
    int interrupted = s->stop == STOP_INTERRUPTED;
    status = session_write_line(s, &out);
    if (status == 0 && interrupted) {
      status = OS_INTERRUPTED_STATUS;
    }
  }
  free(line);
  if (!is_stdin) {
    fclose(file);
  }
  return status != 0 ? status : first;
}
