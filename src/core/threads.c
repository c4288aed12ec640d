/* SPDX-License-Identifier: BSD-3-Clause
 * A pool of workers that take chunks of a loop as they become free.
 *
 * Every thread has a share of the chunks, the same one in each loop over the same matrix: it reads one piece of memory from end to end, and finds
 * what fits its cache there the next time. Who is done takes from the shares of the others, chunk by chunk, so a thread that the system has put
 * aside for another program holds up one chunk at most. Waiting spins only for a moment before it sleeps: a busy neighbour costs its share and no
 * more. */
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

/* Chunks of a share that nobody has taken yet, on a cache line of their own. */
typedef struct {
  _Alignas(64) atomic_int left;
} share;

struct ml_threads {
  int n; /* threads, the caller's among them */
  native_thread *workers;
  share *shares; /* n */
  /* The loop that is running. Written before a `left` makes it visible, read only after taking a chunk. */
  ml_task *task;
  void *arg;
  int items, chunk, chunks;
  _Alignas(64) atomic_int done;  /* chunks finished */
  _Alignas(64) atomic_uint loop; /* how many loops there have been */
  atomic_int sleepers;
  atomic_int caller_sleeps;
  atomic_int quit;
  atomic_int started; /* workers that have taken their number */
  native_mutex mutex;
  native_cond work, finished;
};

/* The first chunk of this thread's share; that of thread n is the end of the last one's. */
static int share_begin(const ml_threads *t, int thread) {
  return (int)((int64_t)t->chunks * thread / t->n);
}

/* Takes a chunk of the share of `owner` and works on it as `thread`; 0 if none was left. A chunk that is taken keeps its loop alive: `done` cannot
 * be complete. */
static int work_once(ml_threads *t, int owner, int thread) {
  share *from = &t->shares[owner];
  int left = atomic_load_explicit(&from->left, memory_order_relaxed);
  do {
    if (left == 0) {
      return 0;
    }
  } while (!atomic_compare_exchange_weak_explicit(&from->left, &left, left - 1, memory_order_acquire, memory_order_relaxed));
  int chunks = t->chunks;
  int begin = (share_begin(t, owner + 1) - left) * t->chunk;
  int end = t->items - begin < t->chunk ? t->items : begin + t->chunk;
  t->task(t->arg, begin, end, thread);
  if (atomic_fetch_add(&t->done, 1) + 1 == chunks && atomic_load(&t->caller_sleeps)) {
    native_mutex_lock(&t->mutex);
    native_cond_signal(&t->finished);
    native_mutex_unlock(&t->mutex);
  }
  return 1;
}

/* Its own share, then what is left of the others'. */
static void work(ml_threads *t, int thread) {
  for (int i = 0, owner = thread; i < t->n; i++, owner = owner + 1 < t->n ? owner + 1 : 0) {
    while (work_once(t, owner, thread)) {
    }
  }
}

static native_result NATIVE_CALL worker(void *arg) {
  ml_threads *t = arg;
  int thread = atomic_fetch_add(&t->started, 1) + 1;
  unsigned seen = 0;
  ml_float_mode_enter();
  for (;;) {
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&t->loop, memory_order_relaxed) == seen; spin++) {
      native_pause();
    }
    if (atomic_load(&t->loop) == seen) {
      native_mutex_lock(&t->mutex);
      atomic_fetch_add(&t->sleepers, 1);
      while (atomic_load(&t->loop) == seen && !atomic_load(&t->quit)) {
        native_cond_wait(&t->work, &t->mutex);
      }
      atomic_fetch_sub(&t->sleepers, 1);
      native_mutex_unlock(&t->mutex);
    }
    if (atomic_load(&t->quit)) {
      return 0;
    }
    seen = atomic_load(&t->loop);
    work(t, thread);
  }
}

void ml_threads_run(ml_threads *t, ml_task *task, void *arg, int n, int chunk) {
  if (n <= 0) {
    return;
  }
  if (t->n == 1 || n <= chunk) {
    task(arg, 0, n, 0);
    return;
  }
  t->task = task;
  t->arg = arg;
  t->items = n;
  t->chunk = chunk;
  t->chunks = (n - 1) / chunk + 1;
  atomic_store(&t->done, 0);
  for (int i = 0; i < t->n; i++) {
    atomic_store_explicit(&t->shares[i].left, share_begin(t, i + 1) - share_begin(t, i), memory_order_release);
  }
  atomic_fetch_add(&t->loop, 1);
  if (atomic_load(&t->sleepers) > 0) {
    native_mutex_lock(&t->mutex);
    native_cond_broadcast(&t->work);
    native_mutex_unlock(&t->mutex);
  }
  work(t, 0);
  for (int spin = 0; atomic_load(&t->done) < t->chunks; spin++) {
    if (spin < SPINS) {
      native_pause();
      continue;
    }
    native_mutex_lock(&t->mutex);
    (void)atomic_exchange(&t->caller_sleeps, 1); /* emulators let a plain store pass the load behind it */
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
  share *shares = ml_aligned_alloc((size_t)n * sizeof *shares);
  if (t == NULL || workers == NULL || shares == NULL) {
    ml_aligned_free(t);
    free(workers);
    ml_aligned_free(shares);
    return ml_fail(err, ML_E_NOMEM, "no memory for %d threads", n);
  }
  *t = (ml_threads){.n = 1, .workers = workers, .shares = shares};
  for (int i = 0; i < n; i++) {
    atomic_init(&shares[i].left, 0);
  }
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
  ml_aligned_free(t->shares);
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
    task(arg, 0, n, 0);
  }
}

#endif
