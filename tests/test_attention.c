/* SPDX-License-Identifier: BSD-3-Clause
 * Grouped-query attention of the build: which KV head a query head sees, which positions each of several sees, and the weighted sum against
 * double precision. */
#include "../src/ops/ops.h"

#include <math.h>

#include "harness.h"

enum { MAX_HEADS = 32, MAX_THREADS = 3, HEAD_DIM = 6, POSITIONS = 37, CAPACITY = 40, COLUMNS = 19 };

static float q[COLUMNS * MAX_HEADS * HEAD_DIM], keys[MAX_HEADS * CAPACITY * HEAD_DIM], values[MAX_HEADS * CAPACITY * HEAD_DIM];
static float scores[MAX_THREADS * ML_ATTENTION_COLUMNS * MAX_HEADS * CAPACITY], out[COLUMNS * MAX_HEADS * HEAD_DIM];

/* The last `columns` of POSITIONS. */
static ml_attention attention(int heads, int kv_heads, int columns) {
  return (ml_attention){.q = q,
                        .keys = keys,
                        .values = values,
                        .scores = scores,
                        .out = out,
                        .n_heads = heads,
                        .n_kv_heads = kv_heads,
                        .head_dim = HEAD_DIM,
                        .capacity = CAPACITY,
                        .before = POSITIONS - columns,
                        .columns = columns};
}

static float random_float(void) {
  return (float)(int32_t)harness_random() / 1073741824.0f;
}

int test_main(int argc, char **argv) {
  static const int shapes[][2] = {{4, 2}, {8, 2}, {28, 4}, {32, 8}, {4, 4}, {4, 1}, {1, 1}};
  harness_start(argc, argv);
  for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
    ml_threads *threads;
    CHECK(ml_threads_create(n_threads, &threads, NULL) == ML_OK, "%d threads", n_threads);
    for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++) {
      int heads = shapes[s / 2][0], kv_heads = shapes[s / 2][1], columns = s % 2 == 0 ? 1 : COLUMNS, group = heads / kv_heads;
      ml_attention a = attention(heads, kv_heads, columns);
      for (int i = 0; i < columns * heads * HEAD_DIM; i++) {
        q[i] = random_float();
      }
      for (int i = 0; i < kv_heads * CAPACITY * HEAD_DIM; i++) {
        keys[i] = random_float();
        values[i] = (float)(i / (CAPACITY * HEAD_DIM) + 1); /* V of KV head j is j + 1 */
      }
      ml_op_attention(threads, &a);
      for (int i = 0; i < columns * heads * HEAD_DIM; i++) {
        float expected = (float)(i / HEAD_DIM % heads / group + 1);
        CHECK(out[i] > expected * 0.99999f && out[i] < expected * 1.00001f, "%d/%d heads: element %d is %g, not %g", heads, kv_heads, i,
              (double)out[i], (double)expected);
      }
      for (int i = 0; i < kv_heads * CAPACITY * HEAD_DIM; i++) {
        values[i] = random_float();
      }
      ml_op_attention(threads, &a);
      for (int h = 0; h < columns * heads; h++) {
        double sum = 0, expected[HEAD_DIM] = {0};
        int kv = h % heads / group, positions = POSITIONS - columns + h / heads + 1;
        const float *k = keys + kv * CAPACITY * HEAD_DIM, *v = values + kv * CAPACITY * HEAD_DIM;
        for (int t = 0; t < positions; t++) {
          double score = 0;
          for (int i = 0; i < HEAD_DIM; i++) {
            score += (double)q[h * HEAD_DIM + i] * (double)k[t * HEAD_DIM + i];
          }
          double e = exp_double(score / 2.449489742783178); /* sqrt 6 */
          sum += e;
          for (int i = 0; i < HEAD_DIM; i++) {
            expected[i] += e * (double)v[t * HEAD_DIM + i];
          }
        }
        for (int i = 0; i < HEAD_DIM; i++) {
          double difference = (double)out[h * HEAD_DIM + i] - expected[i] / sum;
          CHECK(difference < 1e-5 && difference > -1e-5, "%d/%d heads, %d columns: head %d, element %d is off by %g", heads, kv_heads,
                columns, h, i, difference);
        }
      }
    }
    ml_threads_free(threads);
  }
  return harness_finish();
}
