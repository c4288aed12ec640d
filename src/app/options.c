/* SPDX-License-Identifier: BSD-3-Clause
 * The options of ml_run: one table is what is accepted, how it is read and what --help says. */
#include "options.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/legacyml.h"
#include "chat.h"
#include "os.h"
#include "report.h"

typedef enum {
  VALUE_NONE, /* a flag: int, set to 1 */
  VALUE_TEXT, /* const char * */
  VALUE_INT,  /* int32_t from `least` to `most` */
  VALUE_REAL, /* float from `least` to `most` */
  VALUE_SEED, /* the seed, which is the only number of 64 bits */
  VALUE_STOP  /* a text for the list of stop strings */
} value_kind;

typedef struct {
  const char *name;
  const char *value; /* what --help calls the value; NULL for a flag */
  value_kind kind;
  size_t offset; /* of the field in run_options */
  double least, most;
  const char *help; /* NULL: another spelling of the row above */
} option_row;

#define FIELD(name) offsetof(run_options, name)

static const option_row rows[] = {
    {"-z", "FILE", VALUE_TEXT, FIELD(tokenizer), 0, 0, "tokenizer (default: MODEL with .mlb replaced by .tokenizer.bin)"},
    {"-p", "TEXT", VALUE_TEXT, FIELD(prompt), 0, 0, "prompt; special tokens in it are recognised"},
    {"-f", "FILE", VALUE_TEXT, FIELD(file), 0, 0, "prompt from a file, byte for byte; - is standard input"},
    {"--tokens", "IDS", VALUE_TEXT, FIELD(tokens), 0, 0, "prompt as token ids, 1,2,3"},
    {"-n", "N", VALUE_INT, FIELD(count), 0, INT32_MAX, "generate at most N tokens (default: to the end of the context)"},
    {"-c", "CONTEXT", VALUE_INT, FIELD(context), 1, 16777216, "positions (default: the smaller of the model's and 2048)"},
    {"-t", "THREADS", VALUE_INT, FIELD(threads), 1, 1024, "threads (default: as many as this process may use CPUs)"},
    {"--temp", "T", VALUE_REAL, FIELD(temperature), 0, FLT_MAX, "temperature; 0, the default, takes the likeliest token"},
    {"--temperature", "T", VALUE_REAL, FIELD(temperature), 0, FLT_MAX, NULL},
    {"--top-p", "P", VALUE_REAL, FIELD(top_p), 0, 1, "sample from the likeliest tokens that add up to P (default: 1, all)"},
    {"--top-k", "K", VALUE_INT, FIELD(top_k), 0, INT32_MAX, "sample from the K likeliest tokens (default: 0, all)"},
    {"--min-p", "P", VALUE_REAL, FIELD(min_p), 0, 1, "sample from tokens at least P times as likely as the likeliest (default: 0, all)"},
    {"--repeat-penalty", "R", VALUE_REAL, FIELD(repeat_penalty), 0, FLT_MAX,
     "make the last 64 tokens less likely (default: 1, not at all)"},
    {"--seed", "S", VALUE_SEED, FIELD(seed), 0, 0, "seed for sampling, 0 to 2^64-1, -1 = 2^64-1 (default: from the clock)"},
    {"--stop", "TEXT", VALUE_STOP, 0, 0, 0, "end before TEXT; may be given more than once"},
    {"--chat", NULL, VALUE_NONE, FIELD(chat), 0, 0, "answer -p or -f as a message, or else a talk: a line is a message"},
    {"--template", "NAME", VALUE_TEXT, FIELD(template_name), 0, 0, "chat template: " CHAT_TEMPLATES " (default: what the tokenizer names)"},
    {"--system", "TEXT", VALUE_TEXT, FIELD(system), 0, 0, "system message of the chat (default: the tokenizer's)"},
    {"--save-session", "FILE", VALUE_TEXT, FIELD(save_session), 0, 0, "write what the context holds at the end, without the random state"},
    {"--load-session", "FILE", VALUE_TEXT, FIELD(load_session), 0, 0, "go on from there; needs no prompt"},
    {"--json", NULL, VALUE_NONE, FIELD(json), 0, 0, "print a JSON line for each token, and one for the whole"},
    {"--batch", "FILE", VALUE_TEXT, FIELD(batch), 0, 0,
     "answer each line of FILE, {\"prompt\": ...}, with a JSON line; - is standard input"},
    {"--perplexity", "FILE", VALUE_TEXT, FIELD(perplexity), 0, 0, "score the text of FILE, in windows of the context that overlap by half"},
    {"--dump-logits", "FILE", VALUE_TEXT, FIELD(dump_logits), 0, 0, "write the logits of every position, float32"},
    {"--info", NULL, VALUE_NONE, FIELD(info), 0, 0, "print what MODEL is"},
    {"--verify", NULL, VALUE_NONE, FIELD(verify), 0, 0, "check the weights of MODEL first"},
    {"--no-mmap", NULL, VALUE_NONE, FIELD(no_mmap), 0, 0, "read MODEL into memory instead of mapping it"},
    {"-q", NULL, VALUE_NONE, FIELD(quiet), 0, 0, "nothing on standard error but errors"},
    {"--check-cpu", NULL, VALUE_NONE, FIELD(check_cpu), 0, 0, "say whether this CPU runs this build; needs no MODEL"},
    {"--version", NULL, VALUE_NONE, FIELD(version), 0, 0, "print version, instruction set and kernels"},
    {"--help", NULL, VALUE_NONE, FIELD(help), 0, 0, "print this"},
    {"-h", NULL, VALUE_NONE, FIELD(help), 0, 0, NULL},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

void options_print_help(void) {
  printf("ml_run MODEL.mlb (-p TEXT | -f FILE | --tokens IDS | --chat | --batch FILE | --perplexity FILE) [OPTION]...\n"
         "Generates text with a Llama-style model. The text and a newline go to standard output, everything else to standard\n"
         "error. In a talk, Ctrl-C stops an answer and " OS_END_KEYS " ends it.\n"
         "A line of --batch may have options of its own: n, temp, top_p, top_k, min_p, repeat_penalty, seed, stop, and with\n"
         "--chat system. Without a seed it has that of the run plus its number minus one.\n\n");
  for (size_t i = 0; i < N_ROWS; i++) {
    char left[64];
    snprintf(left, sizeof left, "%s%s%s", rows[i].name, rows[i].value != NULL ? " " : "", rows[i].value != NULL ? rows[i].value : "");
    printf("  %-20s  %s\n", left, rows[i].help != NULL ? rows[i].help : "the same");
  }
  printf("\nLong options are also written --option=value; -- ends the options.\n"
         "Exit status: 0 done, 2 usage, 3 input or output, 4 file format, 5 shape or context, 6 memory, 7 CPU not supported,\n"
         "8 a logit is not finite, 130 interrupted.\n");
}

/* Does the text have the characters of a plain decimal number only? strtod alone would also take " 1", "0x1p3", "inf" and "nan". */
static int is_plain(const char *text, const char *characters) {
  return text[0] != '\0' && text[strspn(text, characters)] == '\0';
}

static int read_int(const char *text, double least, double most, int32_t *value) {
  char *end;
  if (!is_plain(text, "+-0123456789")) {
    return 0;
  }
  double number = strtod(text, &end); /* exact for every whole number up to 2^53, and never undefined beyond */
  if (*end != '\0' || !(number >= least && number <= most)) {
    return 0;
  }
  *value = (int32_t)number;
  return 1;
}

static int read_real(const char *text, double least, double most, float *value) {
  char *end;
  if (!is_plain(text, "+-.eE0123456789")) {
    return 0;
  }
  float number = strtof(text, &end);
  int vanished = number == 0 && strcspn(text, "123456789") < strcspn(text, "eE"); /* 1e-50 is no 0 */
  if (*end != '\0' || vanished || !(number >= (float)least && number <= (float)most)) {
    return 0;
  }
  *value = number;
  return 1;
}

static int read_seed(const char *text, uint64_t *value) {
  if (strcmp(text, "-1") == 0) {
    *value = UINT64_MAX;
    return 1;
  }
  if (!is_plain(text, "0123456789")) {
    return 0;
  }
  uint64_t number = 0;
  for (const char *c = text; *c != '\0'; c++) {
    uint64_t digit = (uint64_t)(*c - '0');
    if (number > (UINT64_MAX - digit) / 10) {
      return 0;
    }
    number = number * 10 + digit;
  }
  *value = number;
  return 1;
}

static int store(run_options *options, const option_row *row, const char *value) {
  void *field = (char *)options + row->offset;
  switch (row->kind) {
  case VALUE_NONE: *(int *)field = 1; return 0;
  case VALUE_TEXT:
    if (value[0] == '\0' && strcmp(row->value, "FILE") == 0) {
      return report(ML_E_ARG, "%s: found an empty file name", row->name);
    }
    *(const char **)field = value;
    return 0;
  case VALUE_INT:
    if (!read_int(value, row->least, row->most, field)) {
      return report(ML_E_ARG, "%s: found \"%s\", allowed is a whole number from %.0f to %.0f", row->name, value, row->least, row->most);
    }
    return 0;
  case VALUE_REAL:
    if (!read_real(value, row->least, row->most, field)) {
      return report(ML_E_ARG, "%s: found \"%s\", allowed is a number from %g to %g", row->name, value, row->least, row->most);
    }
    return 0;
  case VALUE_SEED:
    if (!read_seed(value, &options->seed)) {
      return report(ML_E_ARG, "%s: found \"%s\", allowed is a whole number from 0 to %llu, or -1 for the last of them", row->name, value,
                    (unsigned long long)UINT64_MAX);
    }
    options->has_seed = 1;
    return 0;
  case VALUE_STOP:
    if (value[0] == '\0') {
      return report(ML_E_ARG, "%s: found an empty text, which would end every text at once", row->name);
    }
    options->stops[options->n_stops++] = value;
    return 0;
  }
  return 0;
}

/* Finds the row of an argument "name" or "--name=value" and, for the latter, the value. */
static const option_row *find_row(const char *argument, const char **value) {
  const char *equals = strncmp(argument, "--", 2) == 0 ? strchr(argument, '=') : NULL;
  size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
  *value = equals != NULL ? equals + 1 : NULL;
  for (size_t i = 0; i < N_ROWS; i++) {
    if (strlen(rows[i].name) == length && memcmp(rows[i].name, argument, length) == 0) {
      return &rows[i];
    }
  }
  return NULL;
}

/* What the options say together. */
static int check(const run_options *o) {
  if (o->help || o->version || o->check_cpu) {
    return 0;
  }
  int prompts = (o->prompt != NULL) + (o->file != NULL) + (o->tokens != NULL);
  /* What is given beside one of the kinds of run that make no use of it. */
  const char *prompt = o->prompt != NULL ? "-p" : o->file != NULL ? "-f" : o->tokens != NULL ? "--tokens" : NULL;
  const char *state = o->save_session != NULL ? "--save-session" : o->load_session != NULL ? "--load-session" : NULL;
  const char *chat = o->chat ? "--chat" : NULL;
  const char *many = o->batch != NULL ? "--batch" : o->perplexity != NULL ? "--perplexity" : NULL;
  const char *dump = o->dump_logits != NULL ? "--dump-logits" : NULL;
  const struct {
    const char *kind; /* NULL = not asked for */
    const char *others[5];
  } kinds[] = {
      {o->info ? "--info" : NULL, {prompt, state, chat, many, dump}},
      {o->perplexity != NULL ? "--perplexity" : NULL, {prompt, state, chat, o->batch != NULL ? "--batch" : NULL, dump}},
      {o->batch != NULL ? "--batch" : NULL, {prompt, state, dump, NULL, NULL}},
  };
  if (o->model == NULL) {
    return report(ML_E_ARG, "no model given: ml_run MODEL.mlb -p TEXT (ml_run --help lists the options)");
  }
  if (prompts > 1) {
    return report(ML_E_ARG, "-p, -f and --tokens exclude each other: give one of them");
  }
  if (o->chat && o->tokens != NULL) {
    return report(ML_E_ARG, "--tokens does not go with --chat: give the message with -p or -f");
  }
  if (!o->chat && (o->system != NULL || o->template_name != NULL)) {
    return report(ML_E_ARG, "%s needs --chat", o->system != NULL ? "--system" : "--template");
  }
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    for (size_t j = 0; j < 5; j++) {
      if (kinds[i].kind != NULL && kinds[i].others[j] != NULL) {
        return report(ML_E_ARG, "%s does not go with %s: leave out one of them", kinds[i].kind, kinds[i].others[j]);
      }
    }
  }
  if (prompts == 0 && !o->chat && many == NULL && o->load_session == NULL && !o->info && !o->verify) {
    return report(ML_E_ARG, "no prompt given: -p TEXT, -f FILE, --tokens IDS or --chat (ml_run --help lists the options)");
  }
  if (dump != NULL && prompts == 0 && (o->chat || o->load_session == NULL)) {
    return report(ML_E_ARG, "--dump-logits needs a prompt: -p, -f or --tokens");
  }
  if (o->save_session != NULL && prompts == 0 && !o->chat && o->load_session == NULL) {
    return report(ML_E_ARG, "--save-session needs a prompt: -p, -f, --tokens or --chat");
  }
  return 0;
}

int options_set(run_options *options, const char *name, const char *value) {
  const char *none;
  return store(options, find_row(name, &none), value);
}

int options_parse(int argc, char **argv, run_options *options) {
  memset(options, 0, sizeof *options);
  options->count = INT32_MAX;
  options->top_p = 1;
  options->repeat_penalty = 1;
  /* Not more stop strings than arguments. */
  options->stops = malloc(((size_t)argc + 1) * sizeof *options->stops);
  if (options->stops == NULL) {
    return report(ML_E_NOMEM, "not enough memory for %d arguments", argc);
  }
  int literal = 0; /* "--" has been seen */
  for (int i = 1; i < argc; i++) {
    const char *argument = argv[i], *value;
    if (!literal && strcmp(argument, "--") == 0) {
      literal = 1;
      continue;
    }
    if (literal || argument[0] != '-') {
      if (options->model != NULL) {
        return report(ML_E_ARG, "two models given, \"%s\" and \"%s\": a prompt goes behind -p", options->model, argument);
      }
      options->model = argument;
      continue;
    }
    const option_row *row = find_row(argument, &value);
    if (row == NULL) {
      return report(ML_E_ARG, "unknown option \"%s\" (ml_run --help lists the options)", argument);
    }
    if (row->kind == VALUE_NONE && value != NULL) {
      return report(ML_E_ARG, "%s takes no value, found \"%s\"", row->name, value);
    }
    if (row->kind != VALUE_NONE && value == NULL) {
      if (i + 1 == argc) {
        return report(ML_E_ARG, "%s needs a value: %s %s", row->name, row->name, row->value);
      }
      value = argv[++i];
    }
    int status = store(options, row, value);
    if (status != 0) {
      return status;
    }
  }
  return check(options);
}

void options_free(run_options *options) {
  free(options->stops);
  options->stops = NULL;
}

int options_read_tokens(const char *text, int32_t vocab, int32_t **ids, size_t *n_ids) {
  *n_ids = 0;
  *ids = malloc((strlen(text) / 2 + 1) * sizeof **ids); /* an id and its comma are two characters at least */
  if (*ids == NULL) {
    return report(ML_E_NOMEM, "not enough memory for the ids of --tokens");
  }
  for (const char *c = text;; c++) {
    int64_t id = *c >= '0' && *c <= '9' ? 0 : -1;
    const char *start = c;
    for (; *c >= '0' && *c <= '9' && id < vocab; c++) {
      id = id * 10 + (*c - '0');
    }
    if (id < 0 || id >= vocab || (*c != ',' && *c != '\0')) {
      return report(ML_E_ARG, "--tokens: found \"%.*s\" as id %zu, allowed are whole numbers from 0 to %d with a comma between them",
                    (int)(strcspn(start, ",") < 40 ? strcspn(start, ",") : 40), start, *n_ids + 1, (int)vocab - 1);
    }
    (*ids)[(*n_ids)++] = (int32_t)id;
    if (*c == '\0') {
      return 0;
    }
  }
}
