/* SPDX-License-Identifier: BSD-3-Clause
 * A pool of workers that take chunks of a loop as they become free.
 *
 * Chunks are given out one by one, so a worker that the system has put aside for another program holds up one chunk at most, and
 * waiting spins only for a moment before it sleeps: a busy neighbour costs its share and no more. */
#define _POSIX_C_SOURCE 200809L
#include "threads.h"

#ifdef ML_THREADS_PTHREAD

#include <stdatomic.h>
#include <stdlib.h>

#include "aligned.h"
#include "float_mode.h"
#include "native_threads.h"

/* A kernel takes up to 4 bytes per column (ML_MAX_COLS) of its scratch from the stack; some C libraries give a thread 128 KiB. */
#define STACK_BYTES ((size_t)1 << 20)
/* Between two loops of one token lie microseconds: worth waiting for without sleeping, but not much longer. */
#define SPINS 2000

struct ml_threads {
  int n; /* threads, the caller's among them */
  native_thread *workers;
  /* The loop that is running. Written before `left` makes it visible, read only after taking a chunk from `left`. */
  ml_task *task;
  void *arg;
  int items, chunk, chunks;
  /* Chunks nobody has taken yet, and chunks finished: on cache lines of their own. */
  _Alignas(64) atomic_int left;
  _Alignas(64) atomic_int done;
  _Alignas(64) atomic_int sleepers;
  atomic_int caller_sleeps;
  atomic_int quit;
  native_mutex mutex;
  native_cond work, finished;
};

/* Takes one chunk and works on it; 0 if there was none. A chunk that is taken keeps its loop alive: `done` cannot be complete. */
static int work_once(ml_threads *t) {
  int left = atomic_load_explicit(&t->left, memory_order_relaxed);
  do {
    if (left == 0) {
      return 0;
    }
  } while (!atomic_compare_exchange_weak_explicit(&t->left, &left, left - 1, memory_order_acquire, memory_order_relaxed));
  int chunks = t->chunks;
  int begin = (chunks - left) * t->chunk;
  int end = t->items - begin < t->chunk ? t->items : begin + t->chunk;
  t->task(t->arg, begin, end);
  if (atomic_fetch_add(&t->done, 1) + 1 == chunks && atomic_load(&t->caller_sleeps)) {
    native_mutex_lock(&t->mutex);
    native_cond_signal(&t->finished);
    native_mutex_unlock(&t->mutex);
  }
  return 1;
}

static native_result NATIVE_CALL worker(void *arg) {
  ml_threads *t = arg;
  ml_float_mode_enter();
  while (!atomic_load(&t->quit)) {
    for (int spin = 0; spin < SPINS; spin++) {
      if (work_once(t)) {
        spin = 0;
      }
      native_pause();
    }
    native_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->left) == 0 && !atomic_load(&t->quit)) {
      native_cond_wait(&t->work, &t->mutex);
    }
    atomic_fetch_sub(&t->sleepers, 1);
    native_mutex_unlock(&t->mutex);
  }
  return 0;
}

void ml_threads_run(ml_threads *t, ml_task *task, void *arg, int n, int chunk) {
  if (n <= 0) {
    return;
  }
  if (t->n == 1 || n <= chunk) {
    task(arg, 0, n);
    return;
  }
  t->task = task;
  t->arg = arg;
  t->items = n;
  t->chunk = chunk;
  t->chunks = (n - 1) / chunk + 1;
  atomic_store(&t->done, 0);
  atomic_store(&t->left, t->chunks);
  if (atomic_load(&t->sleepers) > 0) {
    native_mutex_lock(&t->mutex);
    native_cond_broadcast(&t->work);
    native_mutex_unlock(&t->mutex);
  }
  while (work_once(t)) {
  }
  for (int spin = 0; atomic_load(&t->done) < t->chunks; spin++) {
    if (spin < SPINS) {
      native_pause();
      continue;
    }
    native_mutex_lock(&t->mutex);
    atomic_store(&t->caller_sleeps, 1);
    while (atomic_load(&t->done) < t->chunks) {
      native_cond_wait(&t->finished, &t->mutex);
    }
    atomic_store(&t->caller_sleeps, 0);
    native_mutex_unlock(&t->mutex);
  }
}

ml_status ml_threads_create(int n, ml_threads **out, ml_error *err) {
  *out = NULL;
  ml_threads *t = ml_aligned_alloc(sizeof *t);
  native_thread *workers = calloc((size_t)n, sizeof *workers);
  if (t == NULL || workers == NULL) {
    ml_aligned_free(t);
    free(workers);
    return ml_fail(err, ML_E_NOMEM, "no memory for %d threads", n);
  }
  *t = (ml_threads){.n = 1, .workers = workers};
  native_mutex_init(&t->mutex);
  native_cond_init(&t->work);
  native_cond_init(&t->finished);
  while (t->n < n && native_thread_start(&workers[t->n], STACK_BYTES, worker, t)) {
    t->n++;
  }
  if (t->n < n) {
    int started = t->n;
    ml_threads_free(t);
    return ml_fail(err, ML_E_NOMEM, "the system gave %d of %d threads; ask for fewer", started, n);
  }
  *out = t;
  return ml_succeed(err);
}

void ml_threads_free(ml_threads *t) {
  if (t == NULL) {
    return;
  }
  native_mutex_lock(&t->mutex);
  atomic_store(&t->quit, 1);
  native_cond_broadcast(&t->work);
  native_mutex_unlock(&t->mutex);
  for (int i = 1; i < t->n; i++) {
    native_thread_join(t->workers[i]);
  }
  native_cond_destroy(&t->finished);
  native_cond_destroy(&t->work);
  native_mutex_destroy(&t->mutex);
  free(t->workers);
  ml_aligned_free(t);
}

int ml_threads_count(const ml_threads *t) {
  return t->n;
}

#else

struct ml_threads {
  char unused;
};

static ml_threads the_caller;

ml_status ml_threads_create(int n, ml_threads **out, ml_error *err) {
  (void)n;
  *out = &the_caller;
  return ml_succeed(err);
}

void ml_threads_free(ml_threads *t) {
  (void)t;
}

int ml_threads_count(const ml_threads *t) {
  (void)t;
  return 1;
}

void ml_threads_run(ml_threads *t, ml_task *task, void *arg, int n, int chunk) {
  (void)t;
  (void)chunk;
  if (n > 0) {
    task(arg, 0, n);
  }
}

#endif
