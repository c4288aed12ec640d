/* SPDX-License-Identifier: BSD-3-Clause
 * A pool of workers that take chunks of a loop as they become free.
 *
 * Every thread has a share of the chunks, the same one in each loop over the same matrix: it reads one piece of memory from end to end, and finds
 * what fits its cache there the next time. Who is done takes from the shares of the others, chunk by chunk, so a thread that the system has put
 * aside for another program holds up one chunk at most. Waiting spins only for a moment before it sleeps, and a thread that was waited for far
 * longer than the rest of the loop took gets no share for a while: a busy neighbour costs its share and no more. */
#define _POSIX_C_SOURCE 200809L
#include "threads.h"

#ifdef ML_THREADS_PTHREAD

#include <stdatomic.h>
#include <stdlib.h>

#include "aligned.h"
#include "float_mode.h"
#include "native_clock.h"
#include "native_threads.h"

/* A kernel takes up to 4 bytes per column (ML_MAX_COLS) of its scratch from the stack; some C libraries give a thread 128 KiB. */
#define STACK_BYTES ((size_t)1 << 20)
/* Between two loops of one token lie microseconds: worth waiting for without sleeping, but not much longer. */
#define SPINS 2000
/* A thread is late that reports when the caller, who always has a chunk of its own, has slept this many times as long as the loop had taken until
 * then, and so many nanoseconds. Cores that are slower than the caller's are not late with a chunk each, nor is who has just been woken. */
#define LATE_TIMES 4
#define LATE_MIN ((int64_t)1000000)
/* Nanoseconds that a late thread gets no share. The system puts a thread aside for some milliseconds at a time. A neighbour that stays is met again
 * and again, so the pause doubles, unless the thread has been back for far longer than it was away and the loop took. */
#define PAUSE_MIN ((int64_t)4000000)
#define PAUSE_MAX ((int64_t)256000000)
#define BACK_FOR_GOOD 16

typedef struct {
  ml_task *task;
  void *arg;
  int items, chunk, chunks;
} loop;

/* What the caller tells one thread is on one cache line, and what the thread says of itself on the next. */
typedef struct {
  _Alignas(64) atomic_int left; /* chunks of the share that nobody has taken yet, the last ones before `end` */
  atomic_uint turn;             /* how many loops this thread has had a share of */
  int end;
  loop of; /* written before `left` makes it visible, read only after taking a chunk */
  _Alignas(64) atomic_int sleeps;
  native_mutex mutex;
  native_cond work;
  int64_t reported; /* when it last did while the caller slept; 0: it has not */
  /* The caller's notes. */
  int given;           /* has a share of this loop */
  int64_t back, pause; /* gets no share before that time; how long that is from when it was late */
} share;

struct ml_threads {
  int n;      /* threads, the caller's among them */
  int places; /* that were asked for: as many as there are shares */
  native_thread *workers;
  share *shares;
  _Alignas(64) atomic_int done; /* chunks reported */
  atomic_int caller_sleeps;
  atomic_int quit;
  atomic_int started; /* workers that have taken their number */
  native_mutex mutex;
  native_cond finished;
};

/* Takes a chunk of `from` and works on it as `thread`: how many chunks the loop has, or 0 if none was left. A chunk that is taken keeps its loop
 * alive: `done` cannot be complete before it is reported. */
static int work_once(share *from, int thread) {
  int left = atomic_load_explicit(&from->left, memory_order_relaxed);
  do {
    if (left == 0) {
      return 0;
    }
  } while (!atomic_compare_exchange_weak_explicit(&from->left, &left, left - 1, memory_order_acquire, memory_order_relaxed));
  const loop of = from->of;
  int begin = (from->end - left) * of.chunk;
  int end = of.items - begin < of.chunk ? of.items : begin + of.chunk;
  of.task(of.arg, begin, end, thread);
  return of.chunks;
}

static void report(ml_threads *t, int thread, int n, int chunks) {
  if (atomic_load(&t->caller_sleeps)) {
    t->shares[thread].reported = native_nanoseconds();
  }
  if (atomic_fetch_add(&t->done, n) + n == chunks && atomic_load(&t->caller_sleeps)) {
    native_mutex_lock(&t->mutex);
    native_cond_signal(&t->finished);
    native_mutex_unlock(&t->mutex);
  }
}

/* Its own share, reported at once, then what is left of the others'. */
static void work(ml_threads *t, int thread) {
  share *own = &t->shares[thread];
  int n = 0, chunks = 0, of;
  while ((of = work_once(own, thread)) > 0) {
    chunks = of;
    n++;
  }
  if (n > 0) {
    report(t, thread, n, chunks);
  }
  for (int i = 1, owner = thread; i < t->n; i++) {
    owner = owner + 1 < t->n ? owner + 1 : 0;
    while ((of = work_once(&t->shares[owner], thread)) > 0) {
      report(t, thread, 1, of);
    }
  }
}

static native_result NATIVE_CALL worker(void *arg) {
  ml_threads *t = arg;
  int thread = atomic_fetch_add(&t->started, 1) + 1;
  share *own = &t->shares[thread];
  unsigned seen = 0;
  ml_float_mode_enter();
  for (;;) {
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&own->turn, memory_order_relaxed) == seen; spin++) {
      native_pause();
    }
    if (atomic_load(&own->turn) == seen) {
      native_mutex_lock(&own->mutex);
      (void)atomic_exchange(&own->sleeps, 1); /* emulators let a plain store pass the load behind it */
      while (atomic_load(&own->turn) == seen && !atomic_load(&t->quit)) {
        native_cond_wait(&own->work, &own->mutex);
      }
      atomic_store(&own->sleeps, 0);
      native_mutex_unlock(&own->mutex);
    }
    if (atomic_load(&t->quit)) {
      return 0;
    }
    seen = atomic_load(&own->turn);
    work(t, thread);
  }
}

/* Gives every thread that is not away its share, and wakes those that sleep. */
static void hand_out(ml_threads *t, loop of, int64_t now) {
  int threads = 0, before = 0, end = 0;
  for (int i = 0; i < t->n; i++) {
    threads += t->shares[i].back <= now;
  }
  for (int i = 0; i < t->n; i++) {
    share *s = &t->shares[i];
    int begin = end;
    before += s->back <= now;
    end = (int)(((int64_t)of.chunks * before + threads - 1) / threads);
    s->given = end > begin;
    if (s->given) {
      s->of = of;
      s->end = end;
      atomic_store_explicit(&s->left, end - begin, memory_order_release);
      atomic_store_explicit(&s->turn, atomic_load_explicit(&s->turn, memory_order_relaxed) + 1, memory_order_release);
    }
  }
  /* Either we see that a thread sleeps, or it sees its turn. One fence for all: a stronger store to each would wait for each in turn. */
  atomic_thread_fence(memory_order_seq_cst);
  for (int i = 1; i < t->n; i++) {
    share *s = &t->shares[i];
    if (s->given && atomic_load(&s->sleeps)) {
      native_mutex_lock(&s->mutex);
      native_cond_signal(&s->work);
      native_mutex_unlock(&s->mutex);
    }
  }
}

/* Sleeps until all chunks are reported. Late is who reported late, whenever the system lets the caller go on. */
static void sleep_until_done(ml_threads *t, int chunks, int64_t start) {
  int64_t slept = native_nanoseconds();
  for (int i = 1; i < t->n; i++) {
    t->shares[i].reported = 0;
  }
  native_mutex_lock(&t->mutex);
  (void)atomic_exchange(&t->caller_sleeps, 1); /* see worker */
  while (atomic_load(&t->done) < chunks) {
    native_cond_wait(&t->finished, &t->mutex);
  }
  atomic_store(&t->caller_sleeps, 0);
  native_mutex_unlock(&t->mutex);
  for (int i = 1; i < t->n; i++) {
    share *s = &t->shares[i];
    if (s->reported - slept > LATE_TIMES * (slept - start) && s->reported - slept > LATE_MIN) {
      int64_t took = s->reported - start, away = s->pause > took ? s->pause : took;
      int again = s->pause > 0 && s->reported - s->back < BACK_FOR_GOOD * away;
      s->pause = !again ? PAUSE_MIN : 2 * s->pause < PAUSE_MAX ? 2 * s->pause : PAUSE_MAX;
      s->back = s->reported + s->pause;
    }
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
  int64_t start = native_nanoseconds();
  int chunks = (n - 1) / chunk + 1;
  atomic_store(&t->done, 0);
  hand_out(t, (loop){task, arg, n, chunk, chunks}, start);
  work(t, 0);
  for (int spin = 0; spin < SPINS && atomic_load(&t->done) < chunks; spin++) {
    native_pause();
  }
  if (atomic_load(&t->done) < chunks) {
    sleep_until_done(t, chunks, start);
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
  *t = (ml_threads){.n = 1, .workers = workers, .shares = shares, .places = n};
  for (int i = 0; i < n; i++) {
    shares[i] = (share){.left = 0};
    native_mutex_init(&shares[i].mutex);
    native_cond_init(&shares[i].work);
  }
  native_mutex_init(&t->mutex);
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
  atomic_store(&t->quit, 1);
  for (int i = 1; i < t->n; i++) {
    native_mutex_lock(&t->shares[i].mutex);
    native_cond_signal(&t->shares[i].work);
    native_mutex_unlock(&t->shares[i].mutex);
  }
  for (int i = 1; i < t->n; i++) { /* whose share is not that of the same number: who starts first has the first */
    native_thread_join(t->workers[i]);
  }
  for (int i = 0; i < t->places; i++) {
    native_cond_destroy(&t->shares[i].work);
    native_mutex_destroy(&t->shares[i].mutex);
  }
  native_cond_destroy(&t->finished);
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
