/* SPDX-License-Identifier: BSD-3-Clause
 * The thread pool: every item is done once, in a thread of the pool that does nothing else meanwhile; all threads take part; who is late again and
 * again is left out for a while and comes back. Runs that hang are ended by whoever started the program. */
#define _POSIX_C_SOURCE 200809L
#include "../src/core/threads.h"

#include <stdatomic.h>

#include "../src/core/native_clock.h"
#include "../src/core/native_threads.h"
#include "harness.h"

enum { MAX_ITEMS = 500, MAX_THREADS = 9, MILLISECOND = 1000000 };

typedef struct {
  atomic_int done[MAX_ITEMS];   /* how often each item was */
  atomic_int busy[MAX_THREADS]; /* threads that are at work */
  atomic_int wrong;             /* chunks of a wrong size, or in a thread that cannot be */
  int threads, items, chunk;
  int spin; /* for so long at most in each chunk */
} items_job;

static void spin_for(int64_t nanoseconds) {
  int64_t start = native_nanoseconds();
  while (native_nanoseconds() - start < nanoseconds) {
    native_pause();
  }
}

static void count_items(void *arg, int begin, int end, int thread) {
  items_job *job = arg;
  int alone = job->threads == 1 || job->items <= job->chunk, last = job->items - begin;
  int size = alone || last < job->chunk ? last : job->chunk;
  if (thread < 0 || thread >= job->threads || end - begin != size || atomic_exchange(&job->busy[thread], 1) != 0) {
    atomic_fetch_add(&job->wrong, 1);
    return;
  }
  if (job->spin > 0) {
    spin_for((int64_t)((uint32_t)begin * 2654435761u) % job->spin);
  }
  for (int i = begin; i < end; i++) {
    atomic_fetch_add(&job->done[i], 1);
  }
  atomic_store(&job->busy[thread], 0);
}

/* Loops of all sizes one after the other; with `spin` long enough for those who wait to sleep. */
static void test_every_item_once(int n, int loops, int spin) {
  static items_job jobs[2]; /* in turn: what still works on the one before finds no threads in it */
  ml_threads *threads = NULL;
  CHECK(ml_threads_create(n, &threads, NULL) == ML_OK, "%d threads", n);
  memset(jobs, 0, sizeof jobs);
  for (int l = 0; threads != NULL && l < loops; l++) {
    items_job *job = &jobs[l % 2];
    int once = 1;
    memset(job, 0, sizeof *job);
    job->threads = ml_threads_count(threads);
    job->items = (int)(harness_random() % (l % 2 ? MAX_ITEMS + 1 : 2 * MAX_THREADS));
    job->chunk = 1 + (int)(harness_random() % (uint32_t)(l % 3 ? 40 : 2));
    job->spin = spin;
    ml_threads_run(threads, count_items, job, job->items, job->chunk);
    for (int i = 0; i < MAX_ITEMS; i++) {
      once &= job->done[i] == (i < job->items);
    }
    CHECK(once && job->wrong == 0 && jobs[(l + 1) % 2].wrong == 0, "%d items in chunks of %d, %d threads: %s", job->items, job->chunk, n,
          once ? "wrong chunks" : "not once");
    job->threads = 0;
  }
  ml_threads_free(threads);
}

static void note_thread(void *arg, int begin, int end, int thread) {
  atomic_int *took_part = arg;
  (void)begin;
  (void)end;
  took_part[thread] = 1;
  spin_for(MILLISECOND);
}

/* Whoever has slept is woken: in loops that are long enough every thread gets something to do sooner or later. */
static void test_every_thread_takes_part(int n) {
  ml_threads *threads = NULL;
  CHECK(ml_threads_create(n, &threads, NULL) == ML_OK, "%d threads", n);
  int all = 0;
  for (int l = 0; threads != NULL && !all && l < 1000; l++) {
    static atomic_int took_part[MAX_THREADS];
    for (int i = 0; l == 0 && i < MAX_THREADS; i++) {
      took_part[i] = 0;
    }
    spin_for(MILLISECOND); /* they fall asleep */
    ml_threads_run(threads, note_thread, took_part, 4 * n, 1);
    all = 1;
    for (int i = 0; i < ml_threads_count(threads); i++) {
      all &= took_part[i];
    }
  }
  CHECK(all, "of %d threads some never took part", n);
  ml_threads_free(threads);
}

typedef struct {
  atomic_int started; /* the thread that is not the caller has an item */
  int late;           /* and takes long over it */
} late_job;

/* The caller, having the first item, leaves the other thread time to take the second one, which it does if it takes part. */
static void two_items(void *arg, int begin, int end, int thread) {
  late_job *job = arg;
  (void)end;
  if (thread > 0) {
    job->started = 1;
    if (job->late) {
      spin_for(20 * MILLISECOND);
    }
  } else if (begin == 0) {
    for (int64_t start = native_nanoseconds(); !job->started && native_nanoseconds() - start < 2 * MILLISECOND;) {
      native_pause();
    }
  }
}

static int other_takes_part(ml_threads *threads, int late) {
  late_job job = {.late = late};
  ml_threads_run(threads, two_items, &job, 2, 1);
  return job.started;
}

/* The pause starts at some milliseconds and doubles: a tenth of a second is only reached by one who was late several times in a row. */
static void test_late_thread_is_left_out(void) {
  ml_threads *threads = NULL;
  CHECK(ml_threads_create(2, &threads, NULL) == ML_OK, "2 threads");
  if (threads == NULL || ml_threads_count(threads) < 2 || ml_threads_available() < 2) {
    printf("not tested: being late, which takes two threads on two CPUs\n");
    ml_threads_free(threads);
    return;
  }
  int64_t away = 0, start = native_nanoseconds();
  int late = 0, back = 1;
  while (back && away < 100 * MILLISECOND && native_nanoseconds() - start < (int64_t)30000 * MILLISECOND) {
    late += other_takes_part(threads, 1);
    int64_t left = native_nanoseconds();
    do {
      back = other_takes_part(threads, 0);
      away = native_nanoseconds() - left;
    } while (!back && away < (int64_t)10000 * MILLISECOND);
  }
  CHECK(away >= 100 * MILLISECOND, "late %d times in a row, a thread was left out for %g ms", late, (double)away / MILLISECOND);
  CHECK(back, "a thread that was left out did not come back in ten seconds");
  ml_threads_free(threads);
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  for (int n = 1; n <= MAX_THREADS; n++) {
    test_every_item_once(n, 400, 0);
    test_every_item_once(n, 40, MILLISECOND / 2);
    test_every_thread_takes_part(n);
  }
  test_late_thread_is_left_out();
  return harness_finish();
}
