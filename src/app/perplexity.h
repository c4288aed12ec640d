/* SPDX-License-Identifier: BSD-3-Clause
 * How well a model predicts a text. */
#ifndef ML_APP_PERPLEXITY_H
#define ML_APP_PERPLEXITY_H

#include "session.h"

/* Scores the text of --perplexity in windows of the context. Each begins half a window behind the one before, and only what that one has
 * not scored is scored: all of the first window, half of the others, so that a token has half a window or more before it. Where prompts
 * begin with an id of the tokenizer, windows do. Prints the perplexity, e to the mean of -log p, and its standard error. */
int run_perplexity(session *s);

#endif
