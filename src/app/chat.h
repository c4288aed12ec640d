/* SPDX-License-Identifier: BSD-3-Clause
 * From messages to ids. */
#ifndef ML_APP_CHAT_H
#define ML_APP_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "../include/legacyml.h"

#define CHAT_TEMPLATES "chatml, llama2, zephyr, plain"

/* A list of ids that grows; starts as {0}. */
typedef struct {
  int32_t *ids;
  size_t n, capacity;
} id_list;

/* Puts the ids of a text at the end of the list. Functions here return 0, or an exit status after a line on standard error. */
int ids_add_text(id_list *list, const ml_tokenizer *tokenizer, const char *text, size_t n_bytes, uint32_t flags);
int ids_add(id_list *list, int32_t id);
void ids_free(id_list *list);

/* A chat template bound to a tokenizer. The text of a message is never read as special pieces. Starts as {0}: no template. */
typedef struct {
  const struct chat_row *row;
  const ml_tokenizer *tokenizer;
  const char *system; /* "" = no system message */
  int32_t end;        /* the special piece that ends an answer, whatever the tokenizer says; -1 = the tokenizer knows */
  int32_t eos;
  const char *stop; /* a text that ends an answer, or NULL */
  int skip_spaces;  /* answers begin with a space that is not part of them */
} chat_template;

/* name and system NULL: what the tokenizer says. An unknown template, or none, is a usage error that names the known ones. */
int chat_open(chat_template *chat, const ml_tokenizer *tokenizer, const char *name, const char *system);

/* Puts a message of the user at the end of the list, and what makes the model answer it. Before the first message goes the system
 * message; before every other one the end of the answer that the model gave. */
int chat_add_message(const chat_template *chat, int first, const char *text, size_t n_bytes, id_list *list);

#endif
