/* SPDX-License-Identifier: BSD-3-Clause
 * The thread pool: every item is done once, in a thread of the pool that does nothing else meanwhile; who is late again and again is left out for a
 * while and comes back. Runs that hang are ended by whoever started the program. */
#define _POSIX_C_SOURCE 200809L
#include "../src/core/threads.h"

#include <stdatomic.h>

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
  for (int i = begin; i < end; i++) {
    atomic_fetch_add(&job->done[i], 1);
  }
  if (job->spin > 0) {
    spin_for((int64_t)((uint32_t)begin * 2654435761u) % job->spin);
  }
  atomic_store(&job->busy[thread], 0);
}

/* Loops of all sizes one after the other; with `spin` long enough for those who wait to sleep. */
static void test_every_item_once(int n, int loops, int spin) {
  ml_threads *threads;
  CHECK(ml_threads_create(n, &threads, NULL) == ML_OK, "%d threads", n);
  for (int l = 0; l < loops; l++) {
    static items_job job;
    int once = 1;
    memset(&job, 0, sizeof job);
    job.threads = ml_threads_count(threads);
    job.items = (int)(harness_random() % (l % 2 ? MAX_ITEMS + 1 : 2 * MAX_THREADS));
    job.chunk = 1 + (int)(harness_random() % (uint32_t)(l % 3 ? 40 : 2));
    job.spin = spin;
    ml_threads_run(threads, count_items, &job, job.items, job.chunk);
    for (int i = 0; i < MAX_ITEMS; i++) {
      once &= job.done[i] == (i < job.items);
    }
    CHECK(once && job.wrong == 0, "%d items in chunks of %d, %d threads: %s", job.items, job.chunk, n, once ? "wrong chunks" : "not once");
  }
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
  ml_threads *threads;
  CHECK(ml_threads_create(2, &threads, NULL) == ML_OK, "2 threads");
  int64_t away = 0, start = native_nanoseconds();
  int late = 0, back = 1;
  while (ml_threads_count(threads) == 2 && back && away < 100 * MILLISECOND &&
         native_nanoseconds() - start < (int64_t)30000 * MILLISECOND) {
    late += other_takes_part(threads, 1);
    int64_t left = native_nanoseconds();
    do {
      back = other_takes_part(threads, 0);
      away = native_nanoseconds() - left;
    } while (!back && away < (int64_t)10000 * MILLISECOND);
  }
  CHECK(ml_threads_count(threads) == 1 || away >= 100 * MILLISECOND, "late %d times in a row, a thread was left out for %g ms", late,
        (double)away / MILLISECOND);
  CHECK(back, "a thread that was left out did not come back in ten seconds");
  ml_threads_free(threads);
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  for (int n = 1; n <= MAX_THREADS; n++) {
    test_every_item_once(n, 400, 0);
    test_every_item_once(n, 40, MILLISECOND / 2);
  }
  test_late_thread_is_left_out();
  return harness_finish();
}
