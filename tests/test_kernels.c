/* SPDX-License-Identifier: BSD-3-Clause
 * Every kernel of the build equals scalar C bit for bit: all sizes around a vector, unaligned data, data that ends at the end of a page, hostile
 * values. (That scalar C is right is test_contract.py's business.) */
#define _DEFAULT_SOURCE
#include "../src/config/ml_config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

/* Memory whose last byte is followed by a page that must not be touched. */
typedef struct {
  unsigned char *base, *end;
  size_t size; /* with the guard page */
} guarded;

static guarded guarded_new(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  guarded g = {.size = (bytes + page - 1) / page * page + page};
  g.base = mmap(NULL, g.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (g.base == MAP_FAILED || mprotect(g.base + g.size - page, page, PROT_NONE) != 0) {
    perror("mmap");
    exit(2);
  }
  g.end = g.base + g.size - page;
  return g;
}

enum { MAX_N = 70 * ML_QK, MAX_ROWS = 11, CANARY = 0x5A, CANARY_BYTES = 64 };

/* Buffers end where their page ends; what is written is compared with what scalar C writes into `expected`. */
static guarded memory[6];
static float expected[2 * MAX_N];
static float start[2 * MAX_N];

/* n floats that end at the page (back = 0) or `back` floats before it. */
static float *floats(int which, int n, int back) {
  return (float *)(void *)(memory[which].end - (size_t)(n + back) * sizeof(float));
}

typedef enum { ORDINARY, WIDE, SPECIAL, HOSTILE, KINDS } value_kind;

static float value(value_kind kind) {
  static const float special[] = {0.0f, -0.0f, 1e-40f, -1e-45f, 3e38f, -3e38f, 88.8f, -87.4f, -104.0f, 1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};
  uint32_t bits = harness_random();
  uint32_t choice = harness_random();
  float x;
  if (kind == HOSTILE) {
    memcpy(&x, &bits, sizeof x);
    return x;
  }
  if (kind == SPECIAL && choice % 16 == 0) {
    return special[choice / 16 % (sizeof special / sizeof *special)];
  }
  if (kind == WIDE) {
    bits = (bits & 0x807FFFFFu) | (choice % 60 + 97) << 23;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
  return (float)(int32_t)bits / 536870912.0f;
}

static void fill(float *x, int n, value_kind kind) {
  for (int i = 0; i < n; i++) {
    x[i] = value(kind);
  }
}

/* Equal bits, where any NaN equals any NaN. */
static int same(const float *a, const float *b, int n) {
  for (int i = 0; i < n; i++) {
    if (a[i] != a[i] && b[i] != b[i]) {
      continue;
    }
    if (memcmp(a + i, b + i, sizeof *a) != 0) {
      return 0;
    }
  }
  return 1;
}

/* Marks the bytes before p; untouched says whether they are as they were. */
static void canary(const void *p) {
  memset((unsigned char *)(uintptr_t)p - CANARY_BYTES, CANARY, CANARY_BYTES);
}

static int untouched(const void *p) {
  const unsigned char *bytes = (const unsigned char *)p - CANARY_BYTES;
  for (int i = 0; i < CANARY_BYTES; i++) {
    if (bytes[i] != CANARY) {
      return 0;
    }
  }
  return 1;
}

/* One run of `call_bound` on y (which starts as `start`) and of `call_scalar` on expected, both n floats. */
#define COMPARE(op, y, n, kind, call_bound, call_scalar)                                                                                 \
  do {                                                                                                                                   \
    memcpy(y, start, (size_t)(n) * sizeof(float));                                                                                       \
    memcpy(expected, start, (size_t)(n) * sizeof(float));                                                                                \
    canary(y);                                                                                                                           \
    call_bound;                                                                                                                          \
    call_scalar;                                                                                                                         \
    CHECK(same(y, expected, n) && untouched(y), op ", n = %d, kind %d, %d floats before the page end", n, (int)kind, back);              \
  } while (0)

static void test_floats(int n, value_kind kind, int back) {
  float *y = floats(0, n, back), *a = floats(1, n, back), *b = floats(2, n, back);
  fill(start, n, kind);
  fill(a, n, kind);
  fill(b, n, kind);
  float factor = value(kind);
  COMPARE("axpy_f32", y, n, kind, ml_k_axpy_f32(y, factor, a, n), ml_k_axpy_f32_scalar(expected, factor, a, n));
  COMPARE("add", y, n, kind, ml_k_add(y, a, n), ml_k_add_scalar(expected, a, n));
  COMPARE("rmsnorm", y, n, kind, ml_k_rmsnorm(y, a, b, n, 1e-5f), ml_k_rmsnorm_scalar(expected, a, b, n, 1e-5f));
  COMPARE("rmsnorm in place", y, n, kind, ml_k_rmsnorm(y, y, b, n, 1e-5f), ml_k_rmsnorm_scalar(expected, expected, b, n, 1e-5f));
  COMPARE("softmax", y, n, kind, ml_k_softmax(y, n), ml_k_softmax_scalar(expected, n));
  COMPARE("silu_mul", y, n, kind, ml_k_silu_mul(y, a, n), ml_k_silu_mul_scalar(expected, a, n));
  float found = ml_k_dot_f32(a, b, n), right = ml_k_dot_f32_scalar(a, b, n);
  CHECK(same(&found, &right, 1), "dot_f32, n = %d, kind %d", n, (int)kind);
}

static void test_rope(int head_dim, value_kind kind, int back) {
  enum { HEADS = 3 };
  int n = HEADS * head_dim;
  float *q = floats(0, n, back), *k = floats(1, head_dim, back);
  float *cos_t = floats(2, head_dim / 2, back), *sin_t = floats(3, head_dim / 2, back);
  fill(start, n, kind);
  fill(cos_t, head_dim / 2, kind);
  fill(sin_t, head_dim / 2, kind);
  memcpy(k, start, (size_t)head_dim * sizeof(float));
  static float expected_k[MAX_N];
  memcpy(expected_k, start, (size_t)head_dim * sizeof(float));
  COMPARE("rope", q, n, kind, ml_k_rope(q, k, cos_t, sin_t, head_dim, HEADS, 1),
          ml_k_rope_scalar(expected, expected_k, cos_t, sin_t, head_dim, HEADS, 1));
  CHECK(same(k, expected_k, head_dim), "rope, keys, head_dim = %d", head_dim);
}

static void test_matrices(int blocks, value_kind kind, int back) {
  int n = blocks * ML_QK, rows = 1 + (int)(harness_random() % MAX_ROWS);
  int r0 = (int)(harness_random() % (uint32_t)rows);
  float *x = floats(0, n, back), *xd = floats(1, blocks, back), *d = floats(2, rows * blocks, back), *y = floats(3, rows, back);
  int8_t *xq = (int8_t *)memory[4].end - n - back % 5, *q = (int8_t *)memory[5].end - rows * n - back % 7;
  static int8_t scalar_q[MAX_N];
  static float scalar_d[MAX_N / ML_QK];
  ml_qact act = {xq, xd, n}, scalar_act = {scalar_q, scalar_d, n};

  fill(x, n, kind);
  canary(xq);
  canary(xd);
  ml_k_quantize_q8(&act, x, n);
  ml_k_quantize_q8_scalar(&scalar_act, x, n);
  CHECK(memcmp(xq, scalar_q, (size_t)n) == 0 && same(xd, scalar_d, blocks) && untouched(xq) && untouched(xd), "quantize_q8, %d blocks, kind %d",
        blocks, (int)kind);

  fill(d, rows * blocks, kind);
  for (int i = 0; i < rows * n; i++) {
    q[i] = (int8_t)(harness_random() % 3 == 0 ? (harness_random() % 2 == 0 ? -128 : 127) : (int)(harness_random() % 256) - 128);
  }
  for (int format = ML_Q8_0; format <= ML_Q4_0; format++) {
    /* Q4_0 uses the last half of the same bytes, so that it ends at the page too. */
    int8_t *weights = format == ML_Q8_0 ? q : q + rows * n / 2;
    ml_qtensor W = {weights, d, rows, n, (uint8_t)format};
    memset(start, 0, sizeof start);
    if (format == ML_Q8_0) {
      COMPARE("matvec_q8", y, rows, kind, ml_k_matvec_q8(y, &W, &act, r0, rows), ml_k_matvec_q8_scalar(expected, &W, &act, r0, rows));
    } else {
      COMPARE("matvec_q4", y, rows, kind, ml_k_matvec_q4(y, &W, &act, r0, rows), ml_k_matvec_q4_scalar(expected, &W, &act, r0, rows));
    }
  }
}

/* The longest row that a model file may have. */
static void test_longest_row(void) {
  int8_t *q = calloc(2, ML_MAX_COLS), *xq = malloc(ML_MAX_COLS);
  float *d = malloc(2 * ML_MAX_COLS / ML_QK * sizeof(float)), *xd = malloc(ML_MAX_COLS / ML_QK * sizeof(float));
  if (q == NULL || xq == NULL || d == NULL || xd == NULL) {
    exit(2);
  }
  for (int i = 0; i < 2 * ML_MAX_COLS; i++) {
    q[i] = (int8_t)harness_random();
  }
  for (int i = 0; i < ML_MAX_COLS; i++) {
    xq[i] = (int8_t)((int)(harness_random() % 255) - 127);
  }
  fill(d, 2 * ML_MAX_COLS / ML_QK, ORDINARY);
  fill(xd, ML_MAX_COLS / ML_QK, ORDINARY);
  ml_qact act = {xq, xd, ML_MAX_COLS};
  ml_qtensor q8 = {q, d, 2, ML_MAX_COLS, ML_Q8_0}, q4 = {q, d, 2, ML_MAX_COLS, ML_Q4_0};
  float y[2], right[2];
  ml_k_matvec_q8(y, &q8, &act, 0, 2);
  ml_k_matvec_q8_scalar(right, &q8, &act, 0, 2);
  CHECK(same(y, right, 2), "matvec_q8, %d columns", ML_MAX_COLS);
  ml_k_matvec_q4(y, &q4, &act, 0, 2);
  ml_k_matvec_q4_scalar(right, &q4, &act, 0, 2);
  CHECK(same(y, right, 2), "matvec_q4, %d columns", ML_MAX_COLS);
  free(q);
  free(xq);
  free(d);
  free(xd);
}

/* A sum folded in the wrong order differs from scalar C on the same data, so the comparison above can fail. */
static void test_notices(void) {
  float a[64], b[64], lane[16] = {0};
  fill(a, 64, WIDE);
  fill(b, 64, WIDE);
  for (int i = 0; i < 64; i++) {
    lane[i / 4] += a[i] * b[i];
  }
  float wrong = 0.0f, right = ml_k_dot_f32_scalar(a, b, 64);
  for (int i = 0; i < 16; i++) {
    wrong += lane[i];
  }
  CHECK(!same(&wrong, &right, 1), "a wrong order was not noticed");
}

int main(int argc, char **argv) {
  harness_start(argc, argv);
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
    memory[i] = guarded_new((size_t)MAX_N * MAX_ROWS * sizeof(float));
  }
  for (int kind = ORDINARY; kind < KINDS; kind++) {
    for (int n = 1; n <= 100; n++) {
      for (int back = 0; back <= 17; back += 1 + back / 3) {
        test_floats(n, (value_kind)kind, back);
      }
    }
    static const int sizes[] = {127, 128, 129, 255, 257, 576, 1023, 2048};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      test_floats(sizes[i], (value_kind)kind, 0);
    }
    for (int head_dim = 2; head_dim <= 132; head_dim += 2) {
      test_rope(head_dim, (value_kind)kind, head_dim % 5);
    }
    for (int blocks = 1; blocks <= 50; blocks++) {
      for (int back = 0; back <= 3; back++) {
        test_matrices(blocks, (value_kind)kind, back);
      }
    }
  }
  test_longest_row();
  test_notices();
  return harness_finish();
}
