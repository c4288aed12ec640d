/* SPDX-License-Identifier: BSD-3-Clause
 * Every kernel of the build equals scalar C bit for bit: all sizes around a vector, unaligned data, data that ends at the end of a page, hostile
 * values. On ordinary numbers it also agrees with double precision and with exact integers, which is what the scalar build has to show.
 * A kernel that dies of a signal, writes to its input or beside its output, or leaves another float mode has failed by name, and the run goes on. */
#define _DEFAULT_SOURCE
#include "../src/config/ml_config.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../src/core/float_mode.h"
#include "harness.h"

/* What arithmetic may change in the float mode, and a bit that none may: flushing of subnormals. */
#if defined(__x86_64__)
enum { MODE_STICKY = 0x3F, MODE_FLUSH = 0x8000 };
#elif defined(__aarch64__)
enum { MODE_STICKY = 0, MODE_FLUSH = 1 << 24 };
#else
#define MODE_STICKY 0xF800009Fu
enum { MODE_FLUSH = 1 << 24 };
#endif

enum { MAX_BLOCKS = 70, MAX_N = MAX_BLOCKS * ML_QK, MAX_ROWS = 11, MAX_HEADS = 5, MAX_BACK = 17, CANARY = 0x5A, CANARY_BYTES = 64 };
/* Products with many vectors: of rows and columns that fill a panel twice, and of more columns than share one. */
enum { MAX_PANEL_ROWS = 40, MAX_COLUMNS = 140, MAX_Y = 20 * MAX_COLUMNS };

/* Two outputs and five inputs, each in memory between two pages that must not be touched. Inputs are read-only in a call. */
enum { Y, Z, A, B, C, D, E, SLOTS };
static struct { unsigned char *base, *end; } slots[SLOTS];
static const size_t slot_bytes = (size_t)MAX_N * MAX_COLUMNS;

static void make_slots(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (slot_bytes + page - 1) / page * page;
  for (int i = 0; i < SLOTS; i++) {
    unsigned char *memory = mmap(NULL, size + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0 || mprotect(memory + page + size, page, PROT_NONE) != 0) {
      perror("mmap");
      exit(2);
    }
    slots[i].base = memory + page;
    slots[i].end = slots[i].base + size;
  }
}

static void protect_inputs(int protection) {
  for (int i = A; i < SLOTS; i++) {
    if (mprotect(slots[i].base, (size_t)(slots[i].end - slots[i].base), protection) != 0) {
      perror("mprotect");
      exit(2);
    }
  }
}

/* Inputs begin where their memory begins, after the first page, whatever the test asks for. */
static int at_front;

/* n floats that end at the page (back = 0) or `back` floats before it; the same in int32 and in bytes. */
static float *floats(int slot, int n, int back) {
  if (at_front && slot >= A) {
    return (float *)(void *)slots[slot].base;
  }
  return (float *)(void *)(slots[slot].end - (size_t)(n + back) * sizeof(float));
}

static int32_t *integers(int slot, int n, int back) {
  return (int32_t *)(void *)floats(slot, n, back);
}

static int8_t *bytes(int slot, int n, int back) {
  if (at_front && slot >= A) {
    return (int8_t *)slots[slot].base;
  }
  return (int8_t *)slots[slot].end - n - back;
}

/* -- Operations ----------------------------------------------------------------------------------------------------------- */

/* The arguments of every operation; each uses what it needs. */
typedef struct {
  float *y, *z; /* written; z by rope only */
  const float *a, *b;
  float factor, eps;
  int n, heads, kv_heads, r0, r1, apart;
  int columns; /* vectors of a product, 0 for matvec; queries of an attention */
  int positions;
  size_t stride;
  const ml_qtensor *W;
  const ml_qact *x;
  ml_qact *out; /* written by quantize_q8 only */
} call;

typedef void (*kernel)(const call *c);

/* For every output of a call its value and the sum of the sizes of its terms, in double precision; y0 is what y was before. */
typedef void (*reference)(const call *c, const float *y0, double *value, double *size);

#define KERNEL(op, ...)                    \
  static void bound_##op(const call *c) {  \
    ml_k_##op(__VA_ARGS__);                \
  }                                        \
  static void scalar_##op(const call *c) { \
    ml_k_##op##_scalar(__VA_ARGS__);       \
  }

KERNEL(axpy_f32, c->y, c->factor, c->a, c->n)
KERNEL(add, c->y, c->a, c->n)
KERNEL(rmsnorm, c->y, c->a, c->b, c->n, c->eps)
KERNEL(softmax, c->y, c->n)
KERNEL(quantize_q8, c->out, c->a, c->n)
KERNEL(silu_mul, c->y, c->a, c->n)
KERNEL(rope, c->y, c->z, c->a, c->b, c->n, c->heads, c->kv_heads)
KERNEL(matvec_q8, c->y, c->W, c->x, c->r0, c->r1, c->apart)
KERNEL(matvec_q4, c->y, c->W, c->x, c->r0, c->r1, c->apart)
KERNEL(matmul_q8, c->y, c->stride, c->W, c->x, c->columns, c->r0, c->r1)
KERNEL(matmul_q4, c->y, c->stride, c->W, c->x, c->columns, c->r0, c->r1)

KERNEL(scores_f32, c->y, c->stride, c->a, c->columns, c->b, c->positions, c->n, c->factor)
KERNEL(mix_f32, c->y, c->a, c->stride, c->columns, c->b, c->positions, c->n)

static void bound_dot_f32(const call *c) {
  c->y[0] = ml_k_dot_f32(c->a, c->b, c->n);
}

static void scalar_dot_f32(const call *c) {
  c->y[0] = ml_k_dot_f32_scalar(c->a, c->b, c->n);
}

static double size_of(double x) {
  return x < 0 ? -x : x;
}

static double sqrt_double(double x) {
  double root = x < 1 ? 1 : x;
  for (int i = 0; i < 60; i++) {
    root = (root + x / root) / 2;
  }
  return root;
}

static void exact_dot_f32(const call *c, const float *y0, double *value, double *size) {
  (void)y0;
  value[0] = size[0] = 0;
  for (int i = 0; i < c->n; i++) {
    double term = (double)c->a[i] * (double)c->b[i];
    value[0] += term;
    size[0] += size_of(term);
  }
}

static void exact_axpy_f32(const call *c, const float *y0, double *value, double *size) {
  for (int i = 0; i < c->n; i++) {
    double term = (double)c->factor * (double)c->a[i];
    value[i] = (double)y0[i] + term;
    size[i] = size_of((double)y0[i]) + size_of(term);
  }
}

static void exact_add(const call *c, const float *y0, double *value, double *size) {
  for (int i = 0; i < c->n; i++) {
    value[i] = (double)y0[i] + (double)c->a[i];
    size[i] = size_of((double)y0[i]) + size_of((double)c->a[i]);
  }
}

static void exact_rmsnorm(const call *c, const float *y0, double *value, double *size) {
  const float *x = c->a == c->y ? y0 : c->a;
  double squares = 0;
  for (int i = 0; i < c->n; i++) {
    squares += (double)x[i] * (double)x[i];
  }
  double root = sqrt_double(squares / c->n + (double)c->eps);
  for (int i = 0; i < c->n; i++) {
    value[i] = (double)x[i] / root * (double)c->b[i];
    size[i] = size_of(value[i]);
  }
}

static void exact_softmax(const call *c, const float *y0, double *value, double *size) {
  double sum = 0;
  for (int i = 0; i < c->n; i++) {
    value[i] = exp_double((double)y0[i]);
    sum += value[i];
  }
  for (int i = 0; i < c->n; i++) {
    value[i] /= sum;
    size[i] = value[i];
  }
}

static void exact_silu_mul(const call *c, const float *y0, double *value, double *size) {
  for (int i = 0; i < c->n; i++) {
    value[i] = (double)y0[i] / (1 + exp_double(-(double)y0[i])) * (double)c->a[i];
    size[i] = size_of(value[i]);
  }
}

/* Of the query heads. */
static void exact_rope(const call *c, const float *y0, double *value, double *size) {
  for (int i = 0; i < c->heads * c->n; i += 2) {
    double a = (double)y0[i], b = (double)y0[i + 1], cosine = (double)c->a[i % c->n / 2], sine = (double)c->b[i % c->n / 2];
    value[i] = a * cosine - b * sine;
    value[i + 1] = a * sine + b * cosine;
    size[i] = size_of(a * cosine) + size_of(b * sine);
    size[i + 1] = size_of(a * sine) + size_of(b * cosine);
  }
}

static void exact_scores_f32(const call *c, const float *y0, double *value, double *size) {
  for (int at = 0; at < c->columns * (int)c->stride; at++) {
    int query = at / (int)c->stride, t = at % (int)c->stride;
    value[at] = t < c->positions ? 0 : (double)y0[at];
    size[at] = 0;
    for (int i = 0; i < c->n && t < c->positions; i++) {
      double term = (double)c->a[query * c->n + i] * (double)c->b[t * c->n + i] * (double)c->factor;
      value[at] += term;
      size[at] += size_of(term);
    }
  }
}

static void exact_mix_f32(const call *c, const float *y0, double *value, double *size) {
  for (int at = 0; at < c->columns * c->n; at++) {
    value[at] = (double)y0[at];
    size[at] = size_of(value[at]);
    for (int t = 0; t < c->positions; t++) {
      double term = (double)c->a[at / c->n * (int)c->stride + t] * (double)c->b[t * c->n + at % c->n];
      value[at] += term;
      size[at] += size_of(term);
    }
  }
}

static int weight(const ml_qtensor *W, int r, int i) {
  size_t at = (size_t)r * (size_t)W->cols + (size_t)(i / ML_QK * ML_QK);
  if (W->type == ML_Q8_0) {
    return W->q[at + (size_t)(i % ML_QK)];
  }
  int byte = ((const uint8_t *)W->q)[at / 2 + (size_t)(i % 16)];
  return (i % ML_QK < 16 ? byte % 16 : byte / 16) - 8;
}

/* Of one vector or of several; what lies between the rows of an output stays as it was. */
static void exact_product(const call *c, const float *y0, double *value, double *size) {
  int blocks = c->W->cols / ML_QK, columns = c->columns == 0 ? 1 : c->columns;
  int ny = c->columns == 0 ? c->W->rows : (int)c->stride * columns;
  for (int at = 0; at < ny; at++) {
    int column = c->columns == 0 ? 0 : at / (int)c->stride, r = at - column * (int)c->stride;
    int8_t *q = c->x->q + column * c->x->n;
    float *d = c->x->d + column * blocks;
    int asked = 0;
    for (int k = 0; k < (c->apart > 0 ? ML_MATVEC_STREAMS : 1); k++) {
      asked |= r >= c->r0 + k * c->apart && r < c->r1 + k * c->apart;
    }
    value[at] = asked ? 0 : (double)y0[at];
    size[at] = 0;
    for (int b = 0; b < blocks && asked; b++) {
      long sum = 0;
      for (int i = b * ML_QK; i < (b + 1) * ML_QK; i++) {
        sum += weight(c->W, r, i) * q[i];
      }
      double term = (double)sum * (double)c->W->d[r * blocks + b] * (double)d[b];
      value[at] += term;
      size[at] += size_of(term);
    }
  }
}

typedef struct {
  const char *name;
  kernel bound, scalar;
  reference exact;
} operation;

#define OPERATION(op, exact) \
  { #op, bound_##op, scalar_##op, exact }

static const operation axpy = OPERATION(axpy_f32, exact_axpy_f32), add = OPERATION(add, exact_add), dot = OPERATION(dot_f32, exact_dot_f32),
                       rmsnorm = OPERATION(rmsnorm, exact_rmsnorm), softmax = OPERATION(softmax, exact_softmax),
                       silu_mul = OPERATION(silu_mul, exact_silu_mul), rope = OPERATION(rope, exact_rope),
                       matvec_q8 = OPERATION(matvec_q8, exact_product), matvec_q4 = OPERATION(matvec_q4, exact_product),
                       matmul_q8 = OPERATION(matmul_q8, exact_product), matmul_q4 = OPERATION(matmul_q4, exact_product),
                       scores = OPERATION(scores_f32, exact_scores_f32), mix = OPERATION(mix_f32, exact_mix_f32);

/* -- Running and comparing ------------------------------------------------------------------------------------------------ */

static sigjmp_buf escape;
static volatile sig_atomic_t in_kernel;
static ml_float_mode standard_mode;

static void on_signal(int number) {
  if (!in_kernel) {
    signal(number, SIG_DFL); /* not a kernel's: die of it */
    return;
  }
  in_kernel = 0;
  siglongjmp(escape, number);
}

static void catch_signals(void) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
  struct sigaction action = {.sa_handler = on_signal};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    sigaction(numbers[i], &action, NULL);
  }
}

static ml_float_mode control_bits(ml_float_mode mode) {
  return mode & ~(ml_float_mode)MODE_STICKY;
}

/* What is wrong with how the kernel ended, or NULL. The float mode is the standard one again afterwards. */
static const char *run_guarded(kernel run, const call *c) {
  int number = sigsetjmp(escape, 1);
  if (number == 0) {
    in_kernel = 1;
    run(c);
    in_kernel = 0;
  }
  ml_float_mode mode = ml_float_mode_enter();
  return number != 0 ? strsignal(number) : control_bits(mode) != standard_mode ? "left another float mode" : NULL;
}

/* A call whose result the caller checks. */
static void run_checked(const char *name, kernel run, const call *c) {
  const char *fault = run_guarded(run, c);
  CHECK(fault == NULL, "%s: %s", name, fault);
}

/* ARMv7 NEON takes a subnormal number for zero. Kernels are given no data there that reaches one on the way; a result may still be one. */
#if defined(__arm__) && defined(ML_ISA_NEON)
enum { FLUSHES = 1 };
#else
enum { FLUSHES = 0 };
#endif

static int is_subnormal(float x) {
  return x != 0.0f && x < 0x1p-126f && x > -0x1p-126f;
}

/* Equal bits, where any NaN equals any NaN. */
static int same_float(float a, float right) {
  if (FLUSHES && is_subnormal(right)) {
    right = right > 0.0f ? 0.0f : -0.0f;
  }
  return (a != a && right != right) || memcmp(&a, &right, sizeof a) == 0;
}

static int same(const float *a, const float *right, int n) {
  for (int i = 0; i < n; i++) {
    if (!same_float(a[i], right[i])) {
      return 0;
    }
  }
  return 1;
}

/* Marks the bytes before an output and those between it and the page; untouched says whether they are as they were. */
static void set_canaries(int slot, const void *p, size_t size) {
  unsigned char *first = (unsigned char *)(uintptr_t)p;
  memset(first - CANARY_BYTES, CANARY, CANARY_BYTES);
  memset(first + size, CANARY, (size_t)(slots[slot].end - first) - size);
}

static int untouched(int slot, const void *p, size_t size) {
  const unsigned char *first = p;
  for (const unsigned char *byte = first - CANARY_BYTES; byte < slots[slot].end; byte++) {
    if (byte == first) {
      byte += size;
    }
    if (byte < slots[slot].end && *byte != CANARY) {
      return 0;
    }
  }
  return 1;
}

static float start_y[MAX_Y], start_z[MAX_N];
static char where[100]; /* size, kind and place of the data, for messages */

/* Runs the bound kernel on outputs of ny and nz floats in their slots, and scalar C on the same in plain memory. The outputs start as start_y
 * and start_z. An input may be c->y itself. exact: also compared with double precision. */
static void compare(const operation *op, const call *c, int ny, int nz, int exact) {
  static float right_y[MAX_Y], right_z[MAX_N];
  static double value[MAX_Y], size[MAX_Y];
  size_t bytes_y = (size_t)ny * sizeof(float), bytes_z = (size_t)nz * sizeof(float);
  call right = *c;
  right.y = right_y;
  right.a = c->a == c->y ? right_y : c->a;
  memcpy(c->y, start_y, bytes_y);
  memcpy(right_y, start_y, bytes_y);
  set_canaries(Y, c->y, bytes_y);
  if (nz > 0) {
    right.z = right_z;
    memcpy(c->z, start_z, bytes_z);
    memcpy(right_z, start_z, bytes_z);
    set_canaries(Z, c->z, bytes_z);
  }
  protect_inputs(PROT_READ);
  const char *fault = run_guarded(op->bound, c);
  const char *scalar_fault = run_guarded(op->scalar, &right);
  protect_inputs(PROT_READ | PROT_WRITE);
  CHECK(fault == NULL && scalar_fault == NULL, "%s, %s: %s", op->name, where, fault != NULL ? fault : scalar_fault);
  CHECK(same(c->y, right_y, ny) && (nz == 0 || same(c->z, right_z, nz)), "%s, %s: not the bits of scalar C", op->name, where);
  CHECK(untouched(Y, c->y, bytes_y) && (nz == 0 || untouched(Z, c->z, bytes_z)), "%s, %s: wrote beside its output", op->name, where);
  if (exact) {
    int wrong = -1;
    op->exact(c, start_y, value, size);
    for (int i = 0; i < ny; i++) {
      wrong = size_of((double)c->y[i] - value[i]) <= 1e-5 * size[i] ? wrong : i;
    }
    CHECK(wrong < 0, "%s, %s: element %d is %.9g, not %.9g", op->name, where, wrong, (double)c->y[wrong < 0 ? 0 : wrong],
          value[wrong < 0 ? 0 : wrong]);
  }
}

/* -- Data ----------------------------------------------------------------------------------------------------------------- */

typedef enum { ORDINARY, WIDE, SPECIAL, HOSTILE, KINDS } value_kind;
static const char *const kind_names[] = {"ordinary", "wide", "special", "hostile"};

/* Any float, but where subnormals are flushed one whose products stay far from them: 0, infinity, NaN, or within 2^±20. */
static float any_float(uint32_t bits) {
  uint32_t exponent = bits >> 23 & 0xFF;
  if (FLUSHES && exponent != 0xFF) {
    bits = (bits & 0x807FFFFFu) | (exponent % 41 + 107) << 23;
  }
  float x;
  memcpy(&x, &bits, sizeof x);
  return FLUSHES && exponent == 0 ? 0.0f : x;
}

static float value_of(value_kind kind) {
  static const float special[] = {0.0f,  -0.0f,  1e-40f,  -1e-45f,     3e38f,        -3e38f,
                                  88.8f, -87.4f, -104.0f, 1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};
  uint32_t bits = harness_random();
  uint32_t choice = harness_random();
  if (kind == HOSTILE) {
    return any_float(bits);
  }
  if (kind == SPECIAL && choice % 16 == 0) {
    float x = special[choice / 16 % (sizeof special / sizeof *special)];
    return FLUSHES && is_subnormal(x) ? 0.0f : x;
  }
  if (kind == WIDE) {
    return any_float((bits & 0x807FFFFFu) | (choice % 60 + 97) << 23);
  }
  return (float)(int32_t)bits / 536870912.0f;
}

static void fill(float *x, int n, value_kind kind) {
  for (int i = 0; i < n; i++) {
    x[i] = value_of(kind);
  }
}

/* Quants: a third of them at either end. */
static void fill_quants(int8_t *q, int n, int lowest) {
  for (int i = 0; i < n; i++) {
    uint32_t choice = harness_random();
    uint32_t bits = harness_random();
    int any = (int)(bits % (uint32_t)(128 - lowest)) + lowest;
    q[i] = (int8_t)(choice % 6 == 0 ? lowest : choice % 6 == 1 ? 127 : any);
  }
}

/* -- Tests ---------------------------------------------------------------------------------------------------------------- */

static void test_floats(int n, value_kind kind, int back) {
  float *a = floats(A, n, back), *b = floats(B, n, back);
  call c = {.y = floats(Y, n, back), .a = a, .b = b, .n = n};
  fill(start_y, n, kind);
  fill(a, n, kind);
  fill(b, n, kind);
  c.factor = value_of(kind);
  c.eps = n % 3 == 0 ? 1e-5f : n % 3 == 1 ? 1e-12f : 0.75f;
  snprintf(where, sizeof where, "n = %d, %s values, %d floats before the page end", n, kind_names[kind], back);
  compare(&axpy, &c, n, 0, kind == ORDINARY);
  compare(&add, &c, n, 0, kind == ORDINARY);
  compare(&rmsnorm, &c, n, 0, kind == ORDINARY);
  compare(&softmax, &c, n, 0, kind == ORDINARY);
  compare(&silu_mul, &c, n, 0, kind == ORDINARY);
  c.a = c.y;
  compare(&rmsnorm, &c, n, 0, kind == ORDINARY);
  c.a = a;
  c.y = floats(Y, 1, back);
  compare(&dot, &c, 1, 0, kind == ORDINARY);
}

static void test_rope(int head_dim, value_kind kind, int back) {
  int heads = 1 + (int)(harness_random() % MAX_HEADS), kv_heads = 1 + (int)(harness_random() % MAX_HEADS);
  float *cos_t = floats(A, head_dim / 2, back), *sin_t = floats(B, head_dim / 2, back);
  call c = {.y = floats(Y, heads * head_dim, back),
            .z = floats(Z, kv_heads * head_dim, back),
            .a = cos_t,
            .b = sin_t,
            .n = head_dim,
            .heads = heads,
            .kv_heads = kv_heads};
  fill(start_y, heads * head_dim, kind);
  memcpy(start_z, start_y, (size_t)heads * (size_t)head_dim * sizeof(float));
  if (kv_heads > heads) {
    fill(start_z + heads * head_dim, (kv_heads - heads) * head_dim, kind);
  }
  fill(cos_t, head_dim / 2, kind);
  fill(sin_t, head_dim / 2, kind);
  snprintf(where, sizeof where, "head_dim = %d, %d and %d heads, %s values", head_dim, heads, kv_heads, kind_names[kind]);
  compare(&rope, &c, heads * head_dim, kv_heads * head_dim, kind == ORDINARY);
  /* Keys are turned as queries are, and all of them. */
  int both = heads < kv_heads ? heads : kv_heads;
  CHECK(same(c.y, c.z, both * head_dim), "rope, %s: keys are not turned as queries are", where);
  CHECK(kind != ORDINARY || !same(c.z + (kv_heads - 1) * head_dim, start_z + (kv_heads - 1) * head_dim, head_dim),
        "rope, %s: last key head", where);
}

static void test_attention(int n, value_kind kind, int back) {
  int queries = 1 + (int)(harness_random() % 4), positions = (int)(harness_random() % 71);
  int stride = positions + (int)(harness_random() % 3);
  call c = {.b = floats(B, positions * n, back), .n = n, .columns = queries, .positions = positions, .stride = (size_t)stride};
  float *a = floats(A, queries * n, back);
  fill(start_y, MAX_Y, kind);
  fill(a, queries * n, kind);
  fill(floats(B, positions * n, back), positions * n, kind);
  c.a = a;
  c.y = floats(Y, queries * stride, back);
  c.factor = value_of(kind);
  snprintf(where, sizeof where, "n = %d, %d queries, %d positions, %s values", n, queries, positions, kind_names[kind]);
  compare(&scores, &c, queries * stride, 0, kind == ORDINARY);
  a = floats(A, queries * stride, back);
  fill(a, queries * stride, kind);
  c.a = a;
  c.y = floats(Y, queries * n, back);
  compare(&mix, &c, queries * n, 0, kind == ORDINARY);
}

/* A largest element, and others within two floats of half a step: there 127 / amax and 1 / d round apart. */
static void fill_half_steps(float *x) {
  float amax = 4.0f + (float)(harness_random() >> 8) * 0x1p-22f;
  for (int i = 0; i < ML_QK; i++) {
    uint32_t choice = harness_random();
    x[i] = (float)(((double)(choice % 254) - 126.5) * (double)amax / 127);
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits += choice / 254 % 5 - 2;
    memcpy(x + i, &bits, sizeof bits);
  }
  x[harness_random() % ML_QK] = amax;
}

static void test_quantize(int blocks, value_kind kind, int back) {
  static const float sizes[] = {1.0f, 0x1p-44f, 0x1.1p-45f, 0x1p-90f, 0x1p+90f}; /* scales on both sides of ML_D_MIN */
  static int8_t right_q[MAX_N];
  static float right_d[MAX_BLOCKS];
  static int32_t sums[MAX_BLOCKS + 1], right_sums[MAX_BLOCKS];
  int n = blocks * ML_QK;
  float *x = floats(A, n, back);
  ml_qact out = {bytes(Y, n, back), floats(Z, blocks, back), sums, n}, right = {right_q, right_d, right_sums, n};
  for (int b = 0; b < blocks; b++) {
    float *block = x + b * ML_QK, size = sizes[harness_random() % (sizeof sizes / sizeof *sizes)];
    if (harness_random() % 2 == 0) {
      fill_half_steps(block);
    } else {
      fill(block, ML_QK, kind);
    }
    for (int i = 0; i < ML_QK; i++) {
      block[i] *= size;
    }
  }
  sums[blocks] = CANARY;
  set_canaries(Y, out.q, (size_t)n);
  set_canaries(Z, out.d, (size_t)blocks * sizeof(float));
  protect_inputs(PROT_READ);
  run_checked("quantize_q8", bound_quantize_q8, &(call){.out = &out, .a = x, .n = n});
  run_checked("quantize_q8 in scalar C", scalar_quantize_q8, &(call){.out = &right, .a = x, .n = n});
  protect_inputs(PROT_READ | PROT_WRITE);
  CHECK(memcmp(out.q, right_q, (size_t)n) == 0 && same(out.d, right_d, blocks) &&
            memcmp(sums, right_sums, (size_t)blocks * sizeof *sums) == 0,
        "quantize_q8, %d blocks, %s values: not the bits of scalar C", blocks, kind_names[kind]);
  for (int b = 0; b < blocks; b++) {
    int sum = 0;
    for (int i = b * ML_QK; i < (b + 1) * ML_QK; i++) {
      sum += out.q[i];
    }
    CHECK(sums[b] == sum, "quantize_q8, %d blocks, %s values: the sum of block %d is given as %d, not %d", blocks, kind_names[kind], b,
          sums[b], sum);
  }
  CHECK(untouched(Y, out.q, (size_t)n) && untouched(Z, out.d, (size_t)blocks * sizeof(float)) && sums[blocks] == CANARY,
        "quantize_q8, %d blocks: wrote beside its output", blocks);
}

/* Sums of the blocks of `columns` vectors of x, in the slot E. */
static void add_up_blocks(ml_qact *x, int columns, int back) {
  int blocks = x->n / ML_QK * columns;
  x->sums = integers(E, blocks, back);
  for (int b = 0; b < blocks; b++) {
    x->sums[b] = 0;
    for (int i = b * ML_QK; i < (b + 1) * ML_QK; i++) {
      x->sums[b] += x->q[i];
    }
  }
}

/* Rows r0 to r1, which may be none, of up to max_rows, half the time with those that lie some way below them; the others keep what was there. */
static void test_matvec(const operation *op, int blocks, value_kind kind, int back, int max_rows) {
  int n = blocks * ML_QK, rows = 1 + (int)(harness_random() % (uint32_t)max_rows);
  int apart = harness_random() % 2 == 0 ? 0 : (int)(harness_random() % (uint32_t)(rows / ML_MATVEC_STREAMS + 1));
  int first_rows = rows - (ML_MATVEC_STREAMS - 1) * apart;
  int r0 = (int)(harness_random() % (uint32_t)first_rows);
  int r1 = r0 + (int)(harness_random() % (uint32_t)(first_rows - r0 + 1));
  int weight_bytes = op == &matvec_q8 ? rows * n : rows * n / 2;
  int8_t *q = bytes(A, weight_bytes, back), *xq = bytes(C, n, back % 5);
  float *d = floats(B, rows * blocks, back), *xd = floats(D, blocks, back);
  ml_qtensor W = {q, d, rows, n, (uint8_t)(op == &matvec_q8 ? ML_Q8_0 : ML_Q4_0)};
  ml_qact x = {.q = xq, .d = xd, .n = n};
  call c = {.y = floats(Y, rows, back), .W = &W, .x = &x, .r0 = r0, .r1 = r1, .apart = apart};
  fill(start_y, rows, ORDINARY);
  fill_quants(q, weight_bytes, -128);
  fill_quants(xq, n, -127);
  add_up_blocks(&x, 1, back);
  fill(d, rows * blocks, kind);
  fill(xd, blocks, kind);
  snprintf(where, sizeof where, "%d blocks, rows %d to %d of %d, %d apart, %s scales, %d before the page end", blocks, r0, r1, rows, apart,
           kind_names[kind], back);
  compare(op, &c, rows, 0, kind == ORDINARY);
}

/* Rows r0 to r1 of `rows` for `columns` vectors; outputs lie up to three floats further apart than they have to. */
static void test_matmul(const operation *op, int blocks, value_kind kind, int back, int rows, int columns) {
  int n = blocks * ML_QK, r0 = (int)(harness_random() % 4 * harness_random() % (uint32_t)rows);
  int r1 = rows - (int)(harness_random() % 4 * harness_random() % (uint32_t)(rows - r0 + 1));
  int stride = rows + (int)(harness_random() % 4);
  int weight_bytes = op == &matmul_q8 ? rows * n : rows * n / 2;
  int8_t *q = bytes(A, weight_bytes, back), *xq = bytes(C, n * columns, back % 5);
  float *d = floats(B, rows * blocks, back), *xd = floats(D, blocks * columns, back);
  ml_qtensor W = {q, d, rows, n, (uint8_t)(op == &matmul_q8 ? ML_Q8_0 : ML_Q4_0)};
  ml_qact x = {.q = xq, .d = xd, .n = n};
  call c = {.y = floats(Y, stride * columns, back), .W = &W, .x = &x, .r0 = r0, .r1 = r1, .columns = columns, .stride = (size_t)stride};
  fill(start_y, stride * columns, ORDINARY);
  fill_quants(q, weight_bytes, -128);
  fill_quants(xq, n * columns, -127);
  add_up_blocks(&x, columns, back);
  fill(d, rows * blocks, kind);
  fill(xd, blocks * columns, kind);
  snprintf(where, sizeof where, "%d blocks, %d columns, rows %d to %d of %d, %s scales, %d before the page end", blocks, columns, r0, r1,
           rows, kind_names[kind], back);
  compare(op, &c, stride * columns, 0, kind == ORDINARY);
}

static void test_matmuls(int blocks, value_kind kind, int back) {
  for (int type = ML_Q8_0; type <= ML_Q4_0; type++) {
    int rows = 1 + (int)(harness_random() % MAX_PANEL_ROWS), columns = 1 + (int)(harness_random() % 40);
    test_matmul(type == ML_Q8_0 ? &matmul_q8 : &matmul_q4, blocks, kind, back, rows, columns);
  }
}

/* Constant weights and activations with scales of 1: the result is an integer. Q8_0 pairs that a 16-bit sum would not hold, both ends of Q4_0. */
static void test_exact_integers(void) {
  static const struct {
    int type, even, odd, x, sum; /* weights of even and odd elements (of Q4_0: as the nibbles say), activation, sum of a block */
  } cases[] = {
      {ML_Q8_0, 127, 127, 127, 516128}, {ML_Q8_0, -128, -128, 127, -520192}, {ML_Q8_0, -128, -128, -127, 520192},
      {ML_Q8_0, -128, -128, 1, -4096},  {ML_Q8_0, -128, -128, -1, 4096},     {ML_Q8_0, 127, 127, -127, -516128},
      {ML_Q8_0, 127, -128, 127, -2032}, {ML_Q8_0, -128, 127, -127, 2032},    {ML_Q4_0, -8, -8, 127, -32512},
      {ML_Q4_0, -8, -8, -127, 32512},   {ML_Q4_0, 7, 7, 127, 28448},         {ML_Q4_0, 7, 7, -127, -28448},
      {ML_Q4_0, 7, -8, 127, -2032},     {ML_Q4_0, -8, 7, -127, 2032},
  };
  enum { BLOCKS = 19, ROWS = 16, COLUMNS = 5 };
  static int8_t q[ROWS * BLOCKS * ML_QK], xq[COLUMNS * BLOCKS * ML_QK];
  static float ones[ROWS * BLOCKS];
  for (int b = 0; b < ROWS * BLOCKS; b++) {
    ones[b] = 1.0f;
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int at = 0; at < ROWS * BLOCKS * ML_QK; at++) {
      int w = at % 2 == 0 ? cases[i].even : cases[i].odd;
      q[at] = (int8_t)(cases[i].type == ML_Q8_0 ? w : (w + 8) * 17); /* 17: both nibbles, elements i and 16 + i */
    }
    memset(xq, cases[i].x, sizeof xq);
    for (int blocks = 1; blocks <= BLOCKS; blocks++) {
      float y[ROWS] = {0};
      ml_qtensor W = {q, ones, ROWS, blocks * ML_QK, (uint8_t)cases[i].type};
      ml_qact x = {.q = xq, .d = ones, .n = blocks * ML_QK};
      const operation *op = cases[i].type == ML_Q8_0 ? &matvec_q8 : &matvec_q4;
      add_up_blocks(&x, COLUMNS, 0);
      run_checked(op->name, op->bound, &(call){.y = y, .W = &W, .x = &x, .r0 = 0, .r1 = ROWS});
      for (int r = 0; r < ROWS; r++) {
        CHECK(y[r] == (float)(blocks * cases[i].sum), "type %d, weights %d and %d, activation %d, %d blocks, row %d: %.9g, not %d",
              cases[i].type, cases[i].even, cases[i].odd, cases[i].x, blocks, r, (double)y[r], blocks * cases[i].sum);
      }
      float many[COLUMNS * ROWS];
      op = cases[i].type == ML_Q8_0 ? &matmul_q8 : &matmul_q4;
      run_checked(op->name, op->bound, &(call){.y = many, .W = &W, .x = &x, .r0 = 0, .r1 = ROWS, .columns = COLUMNS, .stride = ROWS});
      int right = 0;
      for (int at = 0; at < COLUMNS * ROWS; at++) {
        right += many[at] == (float)(blocks * cases[i].sum);
      }
      CHECK(right == COLUMNS * ROWS, "%s, weights %d and %d, activation %d, %d blocks: %d of %d are %d", op->name, cases[i].even,
            cases[i].odd, cases[i].x, blocks, right, COLUMNS * ROWS, blocks * cases[i].sum);
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
  fill_quants(q, 2 * ML_MAX_COLS, -128);
  fill_quants(xq, ML_MAX_COLS, -127);
  fill(d, 2 * ML_MAX_COLS / ML_QK, ORDINARY);
  fill(xd, ML_MAX_COLS / ML_QK, ORDINARY);
  ml_qact act = {.q = xq, .d = xd, .n = ML_MAX_COLS};
  add_up_blocks(&act, 1, 0);
  ml_qtensor q8 = {q, d, 2, ML_MAX_COLS, ML_Q8_0}, q4 = {q, d, 2, ML_MAX_COLS, ML_Q4_0};
  call c = {.y = floats(Y, 2, 0), .W = &q8, .x = &act, .r0 = 0, .r1 = 2};
  snprintf(where, sizeof where, "%d columns", ML_MAX_COLS);
  compare(&matvec_q8, &c, 2, 0, 0);
  c.W = &q4;
  compare(&matvec_q4, &c, 2, 0, 0);
  free(q);
  free(xq);
  free(d);
  free(xd);
}

/* Terms that are all -0: a lane starts at +0, so a sum is +0. */
static void test_negative_zeros(void) {
  for (int n = 1; n <= 40; n++) {
    float *a = floats(A, n, 0), *b = floats(B, n, 0);
    call c = {.y = floats(Y, 1, 0), .a = a, .b = b, .n = n};
    for (int i = 0; i < n; i++) {
      a[i] = -0.0f;
      b[i] = 1.0f;
    }
    snprintf(where, sizeof where, "%d terms of -0", n);
    compare(&dot, &c, 1, 0, 0);
    CHECK(memcmp(c.y, &(float){0.0f}, sizeof *c.y) == 0, "dot_f32, %s: %g", where, (double)c.y[0]);
    enum { ROWS = 16 };
    ml_qtensor W = {bytes(C, ROWS * n * ML_QK, 0), floats(B, ROWS * n, 0), ROWS, n * ML_QK, ML_Q8_0};
    ml_qact x = {.q = bytes(D, n * ML_QK, 0), .d = floats(A, n, 0), .n = n * ML_QK};
    memset(bytes(C, ROWS * n * ML_QK, 0), 0, (size_t)(ROWS * n * ML_QK));
    memset(x.q, 0, (size_t)(n * ML_QK));
    add_up_blocks(&x, 1, 0);
    for (int i = 0; i < ROWS * n; i++) {
      floats(B, ROWS * n, 0)[i] = 1.0f;
    }
    for (int i = 0; i < n; i++) {
      x.d[i] = -1.0f;
    }
    static const float zeros[ROWS];
    c = (call){.y = floats(Y, ROWS, 0), .W = &W, .x = &x, .r0 = 0, .r1 = ROWS};
    compare(&matvec_q8, &c, ROWS, 0, 0);
    CHECK(memcmp(c.y, zeros, sizeof zeros) == 0, "matvec_q8, %s: not all +0", where);
    W.type = ML_Q4_0;
    compare(&matvec_q4, &c, ROWS, 0, 0);
    CHECK(memcmp(c.y, zeros, sizeof zeros) == 0, "matvec_q4, %s: not all +0", where);
  }
}

/* A row more than 2^31 bytes and elements into its matrix, of which nothing else is there. */
static void test_far_row(void) {
#if UINTPTR_MAX > 0xFFFFFFFFu
  enum { ROW = 70001, COLS = ML_MAX_COLS, BLOCKS = COLS / ML_QK };
  static int8_t q[2][COLS], xq[COLS];
  static float d[2][BLOCKS], xd[BLOCKS], y[ROW + 2], near[2];
  fill_quants(q[0], 2 * COLS, -127);
  fill_quants(xq, COLS, -127);
  fill(d[0], 2 * BLOCKS, ORDINARY);
  fill(xd, BLOCKS, ORDINARY);
  for (int type = ML_Q8_0; type <= ML_Q4_0; type++) {
    const operation *op = type == ML_Q8_0 ? &matvec_q8 : &matvec_q4;
    ml_qtensor few = {q[0], d[0], 2, COLS, (uint8_t)type}, far = few;
    far.q = (const int8_t *)((uintptr_t)q[0] - (uintptr_t)ROW * COLS / (type == ML_Q8_0 ? 1 : 2));
    far.d = (const float *)((uintptr_t)d[0] - (uintptr_t)ROW * BLOCKS * sizeof(float));
    far.rows = ROW + 2;
    ml_qact x = {.q = xq, .d = xd, .n = COLS};
    add_up_blocks(&x, 1, 0);
    run_checked(op->name, op->scalar, &(call){.y = near, .W = &few, .x = &x, .r0 = 0, .r1 = 2});
    run_checked(op->name, op->bound, &(call){.y = y, .W = &far, .x = &x, .r0 = ROW, .r1 = ROW + 2});
    CHECK(same(y + ROW, near, 2), "%s: another result in row %d", op->name, ROW);
  }
#endif
}

/* exp in the two kernels that have it: over its whole range against scalar C, and its ends to the last bit. 2^-126 is the smallest normal number. */
static void test_exp(void) {
  enum { STEP = 2048 };
  float *ones = floats(A, STEP, 0);
  call c = {.y = floats(Y, STEP, 0), .a = ones, .n = STEP};
  for (int part = 0; part < 32; part++) {
    for (int i = 0; i < STEP; i++) {
      ones[i] = 1.0f;
      start_y[i] = (float)(part * STEP + i - 16 * STEP) * (104.0f / (16 * STEP));
    }
    snprintf(where, sizeof where, "from %g", (double)start_y[0]);
    compare(&silu_mul, &c, STEP, 0, 0);
    compare(&softmax, &c, STEP, 0, 0);
  }
  for (int at = 0; at < 17; at++) { /* in every lane, and in a tail */
    float x[17] = {0}, u[17];
    for (int i = 0; i < 17; i++) {
      u[i] = 1.0f;
      x[i] = -200.0f;
    }
    x[at] = -0x1.62e42ep+6f; /* exp(-x) is the largest finite one */
    run_checked("silu_mul", bound_silu_mul, &(call){.y = x, .a = u, .n = 17});
    CHECK(x[at] < -0x1p-123f && x[at] > -0x1p-120f, "silu(-0x1.62e42ep+6) = %a", (double)x[at]);
    x[at] = -0x1.62e430p+6f; /* the next: infinite */
    run_checked("silu_mul", bound_silu_mul, &(call){.y = x, .a = u, .n = 17});
    CHECK(memcmp(x + at, &(float){-0.0f}, sizeof *x) == 0, "silu(-0x1.62e43p+6) = %a", (double)x[at]);
    for (int i = 0; i < 17; i++) {
      x[i] = i == (at + 1) % 17 ? 0.0f : -200.0f;
    }
    x[at] = -0x1.5d589ep+6f; /* the least that is not zero */
    run_checked("softmax", bound_softmax, &(call){.y = x, .n = 17});
    CHECK(x[at] > 0x1.00004p-126f && x[at] < 0x1.00006p-126f, "exp(-0x1.5d589ep+6) = %a", (double)x[at]);
    CHECK(x[(at + 1) % 17] == 1.0f, "exp(0) = %a", (double)x[(at + 1) % 17]);
    for (int i = 0; i < 17; i++) {
      x[i] = i == (at + 1) % 17 ? 0.0f : -200.0f;
    }
    x[at] = -0x1.5d58a0p+6f;
    run_checked("softmax", bound_softmax, &(call){.y = x, .n = 17});
    CHECK(memcmp(x + at, &(float){0.0f}, sizeof *x) == 0, "exp(-0x1.5d58ap+6) = %a", (double)x[at]);
  }
}

/* -- Kernels that are wrong: each must be reported ------------------------------------------------------------------------ */

static void wrong_order(const call *c) {
  float lane[16] = {0}, sum = 0.0f;
  for (int i = 0; i < c->n; i++) {
    lane[i % 16] = lane[i % 16] + c->a[i] * c->b[i];
  }
  for (int i = 0; i < 16; i++) {
    sum = sum + lane[i];
  }
  c->y[0] = sum;
}

static void four_lanes(const call *c) {
  int blocks = c->W->cols / ML_QK;
  for (int r = c->r0; r < c->r1; r++) {
    float lane[4] = {0};
    for (int b = 0; b < blocks; b++) {
      int sum = 0;
      for (int i = b * ML_QK; i < (b + 1) * ML_QK; i++) {
        sum += weight(c->W, r, i) * c->x->q[i];
      }
      lane[b % 4] = lane[b % 4] + (float)sum * (c->W->d[r * blocks + b] * c->x->d[b]);
    }
    c->y[r] = (lane[0] + lane[2]) + (lane[1] + lane[3]);
  }
}

static void flips_zero(const call *c) {
  scalar_softmax(c);
  c->y[c->n - 1] = c->y[c->n - 1] == 0.0f ? -0.0f : c->y[c->n - 1];
}

static void one_row_more(const call *c) {
  ml_k_matvec_q8_scalar(c->y, c->W, c->x, c->r0, c->W->rows, 0);
}

static void reads_beyond(const call *c) {
  scalar_add(c);
  c->y[0] = c->y[0] + 0.0f * ((const volatile float *)c->a)[c->n];
}

static void writes_before(const call *c) {
  scalar_add(c);
  c->y[-1] = 1.0f;
}

static void writes_after(const call *c) {
  scalar_add(c);
  c->y[c->n] = 1.0f;
}

static void writes_input(const call *c) {
  scalar_add(c);
  ((float *)(uintptr_t)c->a)[0] = 1.0f;
}

static void sets_mode(const call *c) {
  scalar_add(c);
  ml_float_mode_leave((ml_float_mode)(standard_mode | MODE_FLUSH));
}

static void test_notices(void) {
  static const struct {
    const char *what;
    kernel bound;
    const operation *of;
    int back;
  } twins[] = {
      {"adds up its lanes in another order", wrong_order, &dot, 0},
      {"has four lanes instead of eight", four_lanes, &matvec_q8, 0},
      {"has the other sign of zero", flips_zero, &softmax, 0},
      {"computes rows it was not asked for", one_row_more, &matvec_q8, 0},
      {"reads beyond its input", reads_beyond, &add, 0},
      {"writes before its output", writes_before, &add, 0},
      {"writes after its output", writes_after, &add, 1},
      {"writes after its output, into the next page", writes_after, &add, 0},
      {"writes to its input", writes_input, &add, 0},
      {"leaves another float mode", sets_mode, &add, 0},
  };
  enum { N = 16 * ML_QK, ROWS = 2 };
  for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
    operation twin = {twins[i].what, twins[i].bound, twins[i].of->scalar, twins[i].of->exact};
    int is_matvec = twins[i].of == &matvec_q8, back = twins[i].back;
    int n = is_matvec ? ROWS : twins[i].of == &dot ? 1 : N;
    ml_qtensor W = {bytes(A, ROWS * N, 0), floats(B, ROWS * N / ML_QK, 0), ROWS, N, ML_Q8_0};
    ml_qact x = {.q = bytes(C, N, 0), .d = floats(D, N / ML_QK, 0), .n = N};
    call c = {.y = floats(Y, n, back), .n = N, .W = &W, .x = &x, .r0 = 0, .r1 = twins[i].bound == one_row_more ? 1 : ROWS};
    float *a = floats(A, N, back), *b = floats(B, N, back);
    fill(start_y, N, ORDINARY);
    start_y[N - 1] = -200.0f; /* softmax gives 0 */
    if (is_matvec) {
      /* Terms of 2^29, 2^5 and -2^29 in lanes 0, 4 and 0: eight lanes add up to 2^5, four to 0. */
      memset(bytes(A, ROWS * N, 0), 1, ROWS * N);
      memset(x.q, 1, N);
      add_up_blocks(&x, 1, 0);
      for (int k = 0; k < N / ML_QK; k++) {
        x.d[k] = k == 0 ? 0x1p+24f : k == 4 ? 1.0f : k == 8 ? -0x1p+24f : 0.0f;
      }
      for (int k = 0; k < ROWS * N / ML_QK; k++) {
        floats(B, ROWS * N / ML_QK, 0)[k] = 1.0f;
      }
    } else if (twins[i].of == &dot) {
      /* 2^24, 1 and -2^24 in lanes 0, 1 and 8: 1 when folded in halves, 0 in rising order. */
      for (int k = 0; k < N; k++) {
        a[k] = k == 0 ? 0x1p+24f : k == 1 ? 1.0f : k == 8 ? -0x1p+24f : 0.0f;
        b[k] = 1.0f;
      }
    } else {
      fill(a, N, ORDINARY);
    }
    if (!is_matvec) {
      c.a = a;
      c.b = b;
    }
    long passed = harness.passed, failed = harness.failed;
    harness.quiet = 1;
    compare(&twin, &c, n, 0, 0);
    int noticed = harness.failed > failed;
    twin.bound = twin.scalar;
    failed = harness.failed;
    compare(&twin, &c, n, 0, 0);
    int fair = harness.failed == failed;
    harness.quiet = 0;
    harness.passed = passed;
    harness.failed = failed - noticed;
    CHECK(noticed, "a kernel was not noticed that %s", twins[i].what);
    CHECK(fair, "scalar C was reported as one that %s", twins[i].what);
  }
}

/* -- Times ---------------------------------------------------------------------------------------------------------------- */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nanoseconds of one call: the least of ten rounds, which interruptions can only lengthen. */
static double least_time(kernel run, const call *c) {
  double least = 0;
  for (int round = 0; round < 10; round++) {
    int calls = 0;
    double start = seconds(), took = 0;
    for (; took < 1e-3; took = seconds() - start) {
      for (int i = 0; i < 64; i++, calls++) {
        run(c);
      }
    }
    least = round == 0 || took / calls < least ? took / calls : least;
  }
  return least * 1e9;
}

/* Every operation on ordinary numbers that end at a page, this build and scalar C in turn. ml_bench does the same at the shapes of models. */
static void bench(void) {
  static const operation quantize = {"quantize_q8", bound_quantize_q8, scalar_quantize_q8, NULL};
  const operation *const all[] = {&matvec_q8, &matvec_q4, &quantize, &rmsnorm, &softmax, &rope, &silu_mul, &add, &dot, &axpy};
  enum { BLOCKS = 48, N = BLOCKS * ML_QK, ROWS = MAX_ROWS, HEAD = 64 };
  int8_t *q = bytes(A, N * ROWS, 0), *xq = bytes(C, N, 0);
  float *d = floats(B, BLOCKS * ROWS, 0), *xd = floats(D, BLOCKS, 0);
  ml_qtensor W = {q, d, ROWS, N, ML_Q8_0};
  ml_qact x = {.q = xq, .d = xd, .n = N}, out = {bytes(Y, N, 0), floats(Z, BLOCKS, 0), integers(E, BLOCKS, 0), N};
  printf("%-12s %8s %12s %12s %8s\n", "operation", "size", "ns", "scalar ns", "ratio");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const operation *op = all[i];
    int is_matvec = op == &matvec_q8 || op == &matvec_q4;
    call c = {.y = floats(Y, N, 0), .n = N, .W = &W, .x = &x, .out = &out, .r0 = 0, .r1 = ROWS, .factor = 1e-6f, .eps = 1e-5f};
    W.type = op == &matvec_q8 ? ML_Q8_0 : ML_Q4_0;
    if (is_matvec) {
      fill_quants(q, N * ROWS, -127);
      fill_quants(xq, N, -127);
      add_up_blocks(&x, 1, 0);
      fill(d, BLOCKS * ROWS, ORDINARY);
      fill(xd, BLOCKS, ORDINARY);
    } else {
      c.a = floats(A, N, 0);
      c.b = floats(B, N, 0);
      fill(floats(A, N, 0), N, ORDINARY);
      fill(floats(B, N, 0), N, ORDINARY);
      fill(c.y, N, ORDINARY);
    }
    if (op == &rope) { /* a turn by nothing: repeated, the numbers stay as they are */
      c.n = HEAD;
      c.heads = N / HEAD;
      c.z = floats(Z, HEAD, 0);
      for (int k = 0; k < HEAD / 2; k++) {
        floats(A, N, 0)[k] = 1.0f;
        floats(B, N, 0)[k] = 0.0f;
      }
    }
    if (op == &silu_mul) { /* silu(x) is x where x is large */
      for (int k = 0; k < N; k++) {
        c.y[k] = 30.0f + c.y[k];
        floats(A, N, 0)[k] = 1.0f;
      }
    }
    double fast = least_time(op->bound, &c), slow = least_time(op->scalar, &c);
    printf("%-12s %8d %12.1f %12.1f %8.2f\n", op->name, is_matvec ? N * ROWS : N, fast, slow, slow / fast);
  }
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  make_slots();
  catch_signals();
  ml_float_mode_enter();
  standard_mode = control_bits(ml_float_mode_enter());
  test_notices();
  for (int kind = ORDINARY; kind < KINDS; kind++) {
    for (int n = 1; n <= 100; n++) {
      for (int back = 0; back <= MAX_BACK; back += 1 + back / 3) {
        test_floats(n, (value_kind)kind, back);
      }
    }
    static const int sizes[] = {127, 128, 129, 255, 257, 576, 1023, 2048};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      test_floats(sizes[i], (value_kind)kind, 0);
    }
    for (int head_dim = 2; head_dim <= 132; head_dim += 2) {
      test_rope(head_dim, (value_kind)kind, head_dim % 5);
      test_attention(head_dim, (value_kind)kind, head_dim % 3);
    }
    for (int blocks = 1; blocks <= MAX_BLOCKS; blocks += 1 + blocks / 50) {
      for (int back = 0; back <= 3; back++) {
        test_quantize(blocks, (value_kind)kind, back);
        test_matvec(&matvec_q8, blocks, (value_kind)kind, back, MAX_ROWS);
        test_matvec(&matvec_q4, blocks, (value_kind)kind, back, MAX_ROWS);
      }
      test_matmuls(blocks, (value_kind)kind, blocks % 4);
    }
    /* Kernels may treat several rows in one go, and long ones another way. */
    static const int lengths[] = {9, 15, 18, 44, 119, 121, 127, 128, 129, 135, 137, 243};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      for (int back = 0; back <= 3; back++) {
        test_matvec(&matvec_q8, lengths[i], (value_kind)kind, back, MAX_PANEL_ROWS);
        test_matvec(&matvec_q4, lengths[i], (value_kind)kind, back, MAX_PANEL_ROWS);
      }
    }
  }
  at_front = 1;
  for (int n = 1; n <= 100; n++) {
    test_floats(n, ORDINARY, 0);
    test_rope(2 + n / 2 * 2, ORDINARY, 0);
    test_attention(n, ORDINARY, 0);
  }
  for (int blocks = 1; blocks <= 40; blocks++) {
    test_quantize(blocks, ORDINARY, 0);
    test_matvec(&matvec_q8, blocks, ORDINARY, 0, MAX_ROWS);
    test_matvec(&matvec_q4, blocks, ORDINARY, 0, MAX_ROWS);
    test_matmuls(blocks, ORDINARY, 0);
  }
  at_front = 0;
  /* More columns than share a panel, rows longer than one. */
  test_matmul(&matmul_q8, MAX_BLOCKS, ORDINARY, 1, 17, MAX_COLUMNS);
  test_matmul(&matmul_q4, MAX_BLOCKS, ORDINARY, 1, 17, MAX_COLUMNS);
  test_longest_row();
  test_negative_zeros();
  test_far_row();
  test_exact_integers();
  test_exp();
  if (harness.bench) {
    bench();
  }
  return harness_finish();
}
