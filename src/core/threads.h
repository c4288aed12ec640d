/* SPDX-License-Identifier: BSD-3-Clause
 * A pool of workers that take chunks of a loop as they become free. With THREADS=1 nothing of the system's threads is compiled. */
#ifndef ML_CORE_THREADS_H
#define ML_CORE_THREADS_H

#include "status.h"

typedef struct ml_threads ml_threads;

/* Works on items begin <= i < end. May run in any thread and in any order; `thread`, below ml_threads_count, is the one it runs in. */
typedef void ml_task(void *arg, int begin, int end, int thread);

/* n: threads wanted, the caller's among them. The pool may have fewer: 1 in a build without threads. ML_E_NOMEM when the system has no more
 * threads or memory. */
ml_status ml_threads_create(int n, ml_threads **out, ml_error *err);
void ml_threads_free(ml_threads *threads);
int ml_threads_count(const ml_threads *threads);

/* Calls task for all items 0 <= i < n, in chunks of `chunk` items (the last may be shorter), and returns when all are done. The result must
 * not depend on which thread takes which chunk. One call at a time. */
void ml_threads_run(ml_threads *threads, ml_task *task, void *arg, int n, int chunk);

/* How many threads the process may use: CPU affinity and, on Linux, the control group's quota, rounded down, at least 1. */
int ml_threads_available(void);

#endif
