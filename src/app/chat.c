/* SPDX-License-Identifier: BSD-3-Clause
 * From messages to ids: the template "chatml".
 *
 *   <|im_start|>system\nSYSTEM<|im_end|>\n<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"

#define KNOWN_TEMPLATES "chatml"

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

/* The id of a special piece. */
static int find_marker(const ml_tokenizer *tokenizer, const char *piece, int32_t *id) {
  id_list list = {0};
  int status = ids_add_text(&list, tokenizer, piece, strlen(piece), ML_ENCODE_SPECIAL);
  if (status == 0 && list.n != 1) {
    status = report(ML_E_ARG, "the chat template chatml needs the special piece %s, which this tokenizer does not have", piece);
  }
  if (status == 0) {
    *id = list.ids[0];
  }
  ids_free(&list);
  return status;
}

int chat_open(chat_template *chat, const ml_tokenizer *tokenizer, const char *name, const char *system) {
  if (name == NULL) {
    name = ml_tokenizer_template(tokenizer);
    if (name[0] == '\0') {
      return report(ML_E_ARG, "this tokenizer names no chat template: choose one with --template, known is " KNOWN_TEMPLATES);
    }
  }
  if (strcmp(name, "chatml") != 0) {
    return report(ML_E_ARG, "unknown chat template \"%s\": known is " KNOWN_TEMPLATES ", choose it with --template", name);
  }
  chat->tokenizer = tokenizer;
  chat->system = system != NULL ? system : ml_tokenizer_system(tokenizer);
  int status = find_marker(tokenizer, "<|im_start|>", &chat->start);
  return status == 0 ? find_marker(tokenizer, "<|im_end|>", &chat->end) : status;
}

/* <|im_start|>ROLE\nTEXT. Role and text are one stretch: how a word is cut depends on what stands before it. */
static int open_turn(const chat_template *chat, const char *role, const char *text, size_t n_bytes, id_list *list) {
  size_t n_role = strlen(role);
  char *stretch = malloc(n_role + 1 + n_bytes);
  if (stretch == NULL) {
    return report(ML_E_NOMEM, "not enough memory for a message of %zu bytes", n_bytes);
  }
  memcpy(stretch, role, n_role);
  stretch[n_role] = '\n';
  memcpy(stretch + n_role + 1, text, n_bytes);
  int status = ids_add(list, chat->start);
  if (status == 0) {
    status = ids_add_text(list, chat->tokenizer, stretch, n_role + 1 + n_bytes, 0);
  }
  free(stretch);
  return status;
}

/* <|im_end|>\n */
static int close_turn(const chat_template *chat, id_list *list) {
  int status = ids_add(list, chat->end);
  return status == 0 ? ids_add_text(list, chat->tokenizer, "\n", 1, 0) : status;
}

int chat_add_message(const chat_template *chat, int first, const char *text, size_t n_bytes, id_list *list) {
  int status = 0;
  if (!first) {
    status = close_turn(chat, list);
  } else if (chat->system[0] != '\0') {
    status = open_turn(chat, "system", chat->system, strlen(chat->system), list);
    status = status == 0 ? close_turn(chat, list) : status;
  }
  status = status == 0 ? open_turn(chat, "user", text, n_bytes, list) : status;
  status = status == 0 ? close_turn(chat, list) : status;
  return status == 0 ? open_turn(chat, "assistant", "", 0, list) : status;
}
