/* SPDX-License-Identifier: BSD-3-Clause
 * A pool of workers that take chunks of a loop as they become free.
 *
 * Chunks are given out one by one, so a worker that the system has put aside for another program holds up one chunk at most, and
 * waiting spins only for a moment before it sleeps: a busy neighbour costs its share and no more. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "threads.h"

#include <stdlib.h>

#ifdef ML_THREADS_PTHREAD

#include <pthread.h>
#include <stdatomic.h>

#include "float_mode.h"

/* A kernel takes up to 4 bytes per column (ML_MAX_COLS) of its scratch from the stack; some C libraries give a thread 128 KiB. */
#define STACK_BYTES ((size_t)1 << 20)
/* Between two loops of one token lie microseconds: worth waiting for without sleeping, but not much longer. */
#define SPINS 2000

struct ml_threads {
  int n; /* threads, the caller's among them */
  pthread_t *workers;
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
  pthread_mutex_t mutex;
  pthread_cond_t work, finished;
};

static void pause_cpu(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

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
    pthread_mutex_lock(&t->mutex);
    pthread_cond_signal(&t->finished);
    pthread_mutex_unlock(&t->mutex);
  }
  return 1;
}

static void *worker(void *arg) {
  ml_threads *t = arg;
  ml_float_mode_enter();
  while (!atomic_load(&t->quit)) {
    for (int spin = 0; spin < SPINS; spin++) {
      if (work_once(t)) {
        spin = 0;
      }
      pause_cpu();
    }
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->left) == 0 && !atomic_load(&t->quit)) {
      pthread_cond_wait(&t->work, &t->mutex);
    }
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->mutex);
  }
  return NULL;
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
    pthread_mutex_lock(&t->mutex);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->mutex);
  }
  while (work_once(t)) {
  }
  for (int spin = 0; atomic_load(&t->done) < t->chunks; spin++) {
    if (spin < SPINS) {
      pause_cpu();
      continue;
    }
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->caller_sleeps, 1);
    while (atomic_load(&t->done) < t->chunks) {
      pthread_cond_wait(&t->finished, &t->mutex);
    }
    atomic_store(&t->caller_sleeps, 0);
    pthread_mutex_unlock(&t->mutex);
  }
}

ml_status ml_threads_create(int n, ml_threads **out, ml_error *err) {
  *out = NULL;
  ml_threads *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
  pthread_t *workers = calloc((size_t)n, sizeof *workers);
  if (t == NULL || workers == NULL) {
    free(t);
    free(workers);
    return ml_fail(err, ML_E_NOMEM, "no memory for %d threads", n);
  }
  *t = (ml_threads){.n = 1, .workers = workers};
  pthread_mutex_init(&t->mutex, NULL);
  pthread_cond_init(&t->work, NULL);
  pthread_cond_init(&t->finished, NULL);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, STACK_BYTES);
  int failed = 0;
  while (t->n < n && !failed) {
    failed = pthread_create(&workers[t->n], &attr, worker, t);
    t->n += !failed;
  }
  pthread_attr_destroy(&attr);
  if (failed) {
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
  pthread_mutex_lock(&t->mutex);
  atomic_store(&t->quit, 1);
  pthread_cond_broadcast(&t->work);
  pthread_mutex_unlock(&t->mutex);
  for (int i = 1; i < t->n; i++) {
    pthread_join(t->workers[i], NULL);
  }
  pthread_cond_destroy(&t->finished);
  pthread_cond_destroy(&t->work);
  pthread_mutex_destroy(&t->mutex);
  free(t->workers);
  free(t);
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
