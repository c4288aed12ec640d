/* SPDX-License-Identifier: BSD-3-Clause
 * From messages to ids: the chat templates.
 *
 * Ids are those that Hugging Face's tokenizers make of the texts that the published Jinja templates give, but that a space goes behind {bos}
 * as before a text. */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

/* How a template spells a message and what follows it. In braces: {system} and {user} are the texts, {bos} and {eos} ids of the tokenizer,
 * {begin} what begins any prompt, and others special pieces, which are plain text where the tokenizer has no such piece and the template
 * can do without. */
typedef struct chat_row {
  const char *name;
  const char *with_system; /* the first message behind a system message */
  const char *first;       /* the first message without one */
  const char *again;       /* a later message, behind the answer before it */
  const char *end, *stop;  /* what ends an answer besides the tokenizer's stop ids: a special piece, a text; NULL = nothing */
  int needs_pieces;        /* its special pieces must exist */
  int strips;              /* spaces around a message are left out */
  int skip_spaces;
} chat_row;

#define CHATML_USER "{<|im_start|>}user\n{user}{<|im_end|>}\n{<|im_start|>}assistant\n"
#define ZEPHYR_USER "{<|user|>}\n{user}{eos}\n{<|assistant|>}\n"

static const chat_row rows[] = {
    {.name = "chatml",
     .with_system = "{<|im_start|>}system\n{system}{<|im_end|>}\n" CHATML_USER,
     .first = CHATML_USER,
     .again = "{<|im_end|>}\n" CHATML_USER,
     .end = "<|im_end|>",
     .needs_pieces = 1},
    {.name = "llama2",
     .with_system = "{bos}[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST]",
     .first = "{bos}[INST] {user} [/INST]",
     .again = " {eos}{bos}[INST] {user} [/INST]",
     .strips = 1,
     .skip_spaces = 1},
    {.name = "zephyr", .with_system = "{<|system|>}\n{system}{eos}\n" ZEPHYR_USER, .first = ZEPHYR_USER, .again = "{eos}\n" ZEPHYR_USER},
    {.name = "plain",
     .with_system = "{begin}{system}\n\nUser: {user}\nAssistant:",
     .first = "{begin}User: {user}\nAssistant:",
     .again = "\nUser: {user}\nAssistant:",
     .stop = "\nUser:",
     .skip_spaces = 1},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

/* -- Lists of ids --------------------------------------------------------------------------------------------------- */

static int reserve(id_list *list, size_t more) {
  if (more <= list->capacity - list->n) {
    return 0;
  }
  size_t capacity = list->n + more > 2 * list->capacity ? list->n + more : 2 * list->capacity;
  int32_t *ids = capacity <= SIZE_MAX / sizeof *ids ? realloc(list->ids, capacity * sizeof *ids) : NULL;
  if (ids == NULL) {
    return report(ML_E_NOMEM, "not enough memory for a prompt of %zu tokens", capacity);
  }
  list->ids = ids;
  list->capacity = capacity;
  return 0;
}

int ids_add(id_list *list, int32_t id) {
  int status = reserve(list, 1);
  if (status == 0) {
    list->ids[list->n++] = id;
  }
  return status;
}

int ids_add_text(id_list *list, const ml_tokenizer *tokenizer, const char *text, size_t n_bytes, uint32_t flags) {
  int status = reserve(list, n_bytes + ML_ENCODE_EXTRA);
  if (status != 0) {
    return status;
  }
  ml_error err;
  size_t n_ids = 0;
  if (ml_tokenizer_encode(tokenizer, text, n_bytes, flags, list->ids + list->n, list->capacity - list->n, &n_ids, &err) != ML_OK) {
    return report_error(&err);
  }
  list->n += n_ids;
  return 0;
}

void ids_free(id_list *list) {
  free(list->ids);
  list->ids = NULL;
  list->n = list->capacity = 0;
}

/* -- Templates ------------------------------------------------------------------------------------------------------ */

/* *id = the special piece of this name, -1 if there is none. */
static int find_piece(const ml_tokenizer *tokenizer, const char *name, size_t n, int32_t *id) {
  id_list list = {0};
  int status = ids_add_text(&list, tokenizer, name, n, ML_ENCODE_SPECIAL | ML_ENCODE_BEHIND);
  *id = status == 0 && list.n == 1 ? list.ids[0] : -1;
  ids_free(&list);
  return status;
}

/* The lowest id that ends a text and does not begin one as well, unless there is only that; -1 if nothing ends a text. */
static int32_t find_eos(const ml_tokenizer *tokenizer) {
  int32_t bos = ml_tokenizer_bos(tokenizer);
  for (int32_t id = 0; id < ml_tokenizer_vocab(tokenizer); id++) {
    if (id != bos && ml_tokenizer_is_stop(tokenizer, id)) {
      return id;
    }
  }
  return bos >= 0 && ml_tokenizer_is_stop(tokenizer, bos) ? bos : -1;
}

/* Are all special pieces of the pattern there, if the template needs them? */
static int check_pieces(const chat_template *chat, const char *pattern) {
  for (const char *at = pattern; (at = strstr(at, "{<")) != NULL; at++) {
    size_t n = strcspn(at + 1, "}");
    int32_t id;
    int status = find_piece(chat->tokenizer, at + 1, n, &id);
    if (status == 0 && id < 0) {
      status = report(ML_E_ARG, "the chat template %s needs the special piece %.*s, which this tokenizer does not have", chat->row->name,
                      (int)n, at + 1);
    }
    if (status != 0) {
      return status;
    }
  }
  return 0;
}

int chat_open(chat_template *chat, const ml_tokenizer *tokenizer, const char *name, const char *system) {
  if (name == NULL) {
    name = ml_tokenizer_template(tokenizer);
    if (name[0] == '\0') {
      return report(ML_E_ARG, "this tokenizer names no chat template: choose one with --template, known are " CHAT_TEMPLATES);
    }
  }
  size_t i = 0;
  while (i < N_ROWS && strcmp(name, rows[i].name) != 0) {
    i++;
  }
  if (i == N_ROWS) {
    return report(ML_E_ARG, "unknown chat template \"%s\": known are " CHAT_TEMPLATES ", choose one with --template", name);
  }
  const chat_row *row = &rows[i];
  *chat = (chat_template){.row = row,
                          .tokenizer = tokenizer,
                          .system = system != NULL ? system : ml_tokenizer_system(tokenizer),
                          .end = -1,
                          .eos = find_eos(tokenizer),
                          .stop = row->stop,
                          .skip_spaces = row->skip_spaces};
  if (chat->eos < 0 && strstr(row->again, "{eos}") != NULL) {
    return report(ML_E_ARG, "the chat template %s needs an id that ends a text, which this tokenizer does not have", row->name);
  }
  int status = row->needs_pieces ? check_pieces(chat, row->with_system) : 0;
  return status == 0 && row->end != NULL ? find_piece(tokenizer, row->end, strlen(row->end), &chat->end) : status;
}

/* Text between two special ids: how a word is cut depends on what stands before it, so that it is encoded as a whole. */
typedef struct {
  char *bytes;
  size_t n;
  uint32_t flags;
} stretch;

static void stretch_add(stretch *text, const char *bytes, size_t n) {
  memcpy(text->bytes + text->n, bytes, n);
  text->n += n;
}

static int stretch_end(const chat_template *chat, stretch *text, id_list *list) {
  int status = text->n > 0 ? ids_add_text(list, chat->tokenizer, text->bytes, text->n, text->flags) : 0;
  text->n = 0;
  text->flags = ML_ENCODE_BEHIND;
  return status;
}

/* Puts what a name in braces stands for behind the text. `user` is the n_user bytes of the message. */
static int add_named(const chat_template *chat, const char *name, size_t n, const char *user, size_t n_user, stretch *text, id_list *list) {
  int32_t id = -1;
  int status = 0;
  if (strncmp(name, "user}", 5) == 0) {
    stretch_add(text, user, n_user);
    return 0;
  }
  if (strncmp(name, "system}", 7) == 0) {
    stretch_add(text, chat->system, strlen(chat->system));
    return 0;
  }
  if (strncmp(name, "begin}", 6) == 0) {
    text->flags |= ML_ENCODE_BOS;
    return 0;
  }
  int begins = strncmp(name, "bos}", 4) == 0;
  if (begins) {
    id = ml_tokenizer_bos(chat->tokenizer);
  } else if (strncmp(name, "eos}", 4) == 0) {
    id = chat->eos;
  } else {
    status = find_piece(chat->tokenizer, name, n, &id);
    if (status == 0 && id < 0) {
      stretch_add(text, name, n);
    }
  }
  if (status == 0 && id >= 0) {
    status = stretch_end(chat, text, list);
    status = status == 0 ? ids_add(list, id) : status;
    text->flags = ML_ENCODE_BEHIND_SPECIAL;
  }
  if (begins) {
    text->flags = 0;
  }
  return status;
}

static int is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

int chat_add_message(const chat_template *chat, int first, const char *text, size_t n_bytes, id_list *list) {
  const chat_row *row = chat->row;
  int has_system = first && chat->system[0] != '\0';
  const char *pattern = has_system ? row->with_system : first ? row->first : row->again;
  while (row->strips && n_bytes > 0 && is_space(text[n_bytes - 1])) {
    n_bytes--;
  }
  while (row->strips && !has_system && n_bytes > 0 && is_space(*text)) {
    text++;
    n_bytes--;
  }
  /* The template's text is shorter than the template. */
  stretch made = {.bytes = malloc(strlen(pattern) + strlen(chat->system) + n_bytes), .flags = first ? 0 : ML_ENCODE_BEHIND};
  if (made.bytes == NULL) {
    return report(ML_E_NOMEM, "not enough memory for a message of %zu bytes", n_bytes);
  }
  int status = 0;
  for (const char *at = pattern; *at != '\0' && status == 0;) {
    size_t n = strcspn(at, "{");
    stretch_add(&made, at, n);
    at += n;
    if (*at == '{') {
      n = strcspn(at + 1, "}");
      status = add_named(chat, at + 1, n, text, n_bytes, &made, list);
      at += n + 2;
    }
  }
  status = status == 0 ? stretch_end(chat, &made, list) : status;
  free(made.bytes);
  return status;
}
