/* SPDX-License-Identifier: BSD-3-Clause
 * Many prompts for one model. */
#ifndef ML_APP_BATCH_H
#define ML_APP_BATCH_H

#include "session.h"

/* Answers each line of --batch, {"prompt": "..."} and options of its own by name: n, temp, top_p, top_k, min_p, repeat_penalty, seed, stop
 * (a string or an array of strings), and with --chat system. A line of output for each: {"line": its number, "text": ...}, or
 * {"line": ..., "error": sentence, "status": number}, and the next line goes on. Empty lines are none. A line without a seed has that of
 * the run plus its number minus one. Returns the first status that is not 0. */
int run_batch(session *s);

#endif
