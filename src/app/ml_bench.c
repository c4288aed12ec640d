/* SPDX-License-Identifier: BSD-3-Clause
 * ml_bench: how fast the kernels of this build are beside the scalar ones, and how fast a model runs. */
#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../config/ml_config.h"
#include "../core/arena.h"
#include "../core/threads.h"
#include "../include/legacyml.h"
#include "main_guard.h"
#include "os.h"

static const char usage[] =
    "usage: ml_bench [MODEL.mlb] [-t THREADS] [-n TOKENS] [-r ROUNDS] [--json] [--version] [--help]\n"
    "\n"
    "Without a model: every kernel at shapes of small models, this build and scalar C in turn, one thread.\n"
    "With a model: tokens per second for a prompt and for decoding, and the bandwidth of its weights.\n"
    "Both also time, with as many threads, a plain loop that only reads memory and loops of nothing but multiply-adds in\n"
    "registers, and print the share that is reached of these.\n"
    "  -t THREADS  1 to 1024; default: what CPU affinity and the container's quota allow\n"
    "  -n TOKENS   tokens of the prompt and of decoding; default: 64 each, or what the model's context holds\n"
    "  -r ROUNDS   rounds, 1 to 101; the median is printed, default 5\n"
    "  --json      one JSON object instead of a table\n";

#define MAX_ROUNDS 101
#define DEFAULT_TOKENS 64

typedef struct {
  const char *model;
  int threads, tokens, rounds; /* threads, tokens: 0 = the default */
  int json;
} bench_options;

/* A whole number from low to high, or 0 after a line on standard error. */
static int read_count(const char *option, const char *text, int low, int high, int *out) {
  char *end = NULL;
  long value = text != NULL ? strtol(text, &end, 10) : 0;
  if (text == NULL || end == text || *end != '\0' || value < low || value > high) {
    fprintf(stderr, "ml_bench: %s needs a whole number from %d to %d, found %s\n", option, low, high, text != NULL ? text : "nothing");
    return 0;
  }
  *out = (int)value;
  return 1;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare_doubles);
  return n % 2 != 0 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* -- Output --------------------------------------------------------------------------------------------------------------- */

static int output_error; /* the first errno of standard output */

/* Writes what has been printed; 0 if that, or an earlier write, failed. */
static int flush_output(void) {
  int error = os_write(stdout, "", 0);
  if (output_error == 0) {
    output_error = error;
  }
  return output_error == 0;
}

/* Every measured number is above 0. What could not be measured is 0 (or was divided by 0): an empty cell, and null in JSON. */
static int is_measured(double value) {
  return value > 0 && value <= DBL_MAX;
}

static void print_cell(double value, int decimals) {
  if (is_measured(value)) {
    printf(" %.*f |", decimals, value);
  } else {
    fputs(" |", stdout);
  }
}

/* `before`, which is the punctuation and the name of the field, and the number. */
static void json_number(const char *before, double value) {
  fputs(before, stdout);
  if (is_measured(value)) {
    printf("%.12g", value); /* bytes of a file are exact */
  } else {
    fputs("null", stdout);
  }
}

/* Bytes of the UTF-8 character at s; 0 if there is none: a stray byte, an overlong form, a surrogate, above U+10FFFF, cut short. */
static int utf8_length(const unsigned char *s) {
  int length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
  int low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80; /* of the second byte */
  int high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; i++) {
    if (s[i] < low || s[i] > high) {
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

/* `before` and the text as a JSON string. A path may hold bytes that are not UTF-8, which JSON must not: each becomes U+FFFD. */
static void json_string(const char *before, const char *text) {
  fputs(before, stdout);
  putchar('"');
  for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
    int length = utf8_length(s);
    if (length == 0) {
      fputs("\\ufffd", stdout);
    } else if (*s < 0x20 || *s == 0x7F) {
      printf("\\u%04x", *s);
    } else {
      printf("%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", length, (const char *)s);
    }
    s += length > 0 ? length : 1;
  }
  putchar('"');
}

/* -- Roofs ---------------------------------------------------------------------------------------------------------------- */

/* What no kernel can go beyond: how fast memory is read, and how fast each kind of multiply-add follows the next. 0: not measured. */
typedef enum { PEAK_Q8, PEAK_Q4, PEAK_F32, PEAKS, NO_PEAK } peak_kind;

typedef struct {
  double read;        /* GB/s */
  double peak[PEAKS]; /* G multiply-adds/s */
} roof_rates;

/* Far more than any cache holds, in pieces that threads take in turn. */
enum { READ_PIECES = 256, PIECE_BYTES = 1 << 20, PIECE_WORDS = PIECE_BYTES / (int)sizeof(size_t) };

typedef struct {
  size_t *words;                     /* READ_PIECES * PIECE_WORDS */
  volatile size_t sums[READ_PIECES]; /* of each piece; volatile, or a compiler that sees nobody use them could leave the reading out */
} read_work;

/* Plain C with a constant number of steps, which compilers turn into vectors of the build's ISA. Four places at once: a build without vectors
 * then waits for memory and not for its own loop, and CPUs read ahead in several places somewhat faster than in one. */
static void read_pieces(void *arg, int begin, int end, int thread) {
  (void)thread;
  read_work *work = arg;
  for (int piece = begin; piece < end; piece++) {
    const size_t *words = work->words + (size_t)piece * PIECE_WORDS;
    size_t sum = 0;
    for (int i = 0; i < PIECE_WORDS / 4; i++) {
      sum += (words[i] ^ words[i + PIECE_WORDS / 4]) + (words[i + PIECE_WORDS / 2] ^ words[i + PIECE_WORDS / 4 * 3]);
    }
    work->sums[piece] = sum;
  }
}

/* GB/s at which the threads read memory, the median of the rounds; 0 if there is no memory to measure it with. */
static double bench_read(ml_threads *threads, int rounds) {
  read_work work = {.words = malloc((size_t)READ_PIECES * PIECE_BYTES)};
  double seconds[MAX_ROUNDS], rate = 0;
  if (work.words != NULL) {
    memset(work.words, 1, (size_t)READ_PIECES * PIECE_BYTES); /* or every page would be the same one of zeros */
    for (int r = -1; r < rounds && !os_interrupted(); r++) {  /* the first is not counted */
      double start = os_milliseconds();
      ml_threads_run(threads, read_pieces, &work, READ_PIECES, 1);
      seconds[r < 0 ? 0 : r] = (os_milliseconds() - start) / 1000.0;
    }
    rate = os_interrupted() ? 0 : (double)READ_PIECES * (double)PIECE_BYTES / median(seconds, rounds) * 1e-9;
  }
  free(work.words);
  return rate;
}

typedef struct {
  double (*loop)(long steps);
  long steps;
} peak_work;

static void peak_pieces(void *arg, int begin, int end, int thread) {
  (void)thread;
  peak_work *work = arg;
  for (int piece = begin; piece < end; piece++) {
    work->loop(work->steps);
  }
}

/* G multiply-adds/s of all threads together. The best of many short rounds: others may take the CPU for a moment, and less than what can be
 * reached is no roof. */
static double bench_peak(ml_threads *threads, double (*loop)(long steps), int rounds) {
  peak_work work = {.loop = loop, .steps = 1};
  double best = 0;
  for (int long_enough = 0; long_enough < 3;) { /* a piece takes 0.1 ms, and not because it was held up once */
    double start = os_milliseconds();
    loop(work.steps);
    if (os_milliseconds() - start >= 0.1) {
      long_enough++;
    } else {
      work.steps *= 2;
      long_enough = 0;
    }
  }
  int pieces = 8 * ml_threads_count(threads);
  double madds = loop(work.steps) * pieces;
  for (int r = 0; r < 10 * rounds && !os_interrupted(); r++) {
    double start = os_milliseconds();
    ml_threads_run(threads, peak_pieces, &work, pieces, 1);
    double rate = madds / (os_milliseconds() - start) * 1e-6;
    best = rate > best ? rate : best;
  }
  return best;
}

static roof_rates bench_roofs(int n_threads, int rounds) {
  roof_rates roofs = {0};
  ml_threads *threads = NULL;
  if (ml_threads_create(n_threads, &threads, NULL) == ML_OK) {
    roofs = (roof_rates){
        .read = bench_read(threads, rounds),
        .peak = {bench_peak(threads, ml_k_peak_q8, rounds), bench_peak(threads, ml_k_peak_q4, rounds),
                 bench_peak(threads, ml_k_peak_f32, rounds)},
    };
  }
  ml_threads_free(threads);
  return roofs;
}

/* What both kinds of object begin with. */
static void json_begin(const bench_options *o, int threads, const roof_rates *roofs) {
  json_string("{\"version\": ", ml_version());
  json_string(", \"isa\": ", ml_isa_name());
  json_string(", \"thread_model\": ", ml_thread_model());
  json_number(", \"threads\": ", threads);
  json_number(", \"rounds\": ", o->rounds);
  json_number(", \"read_gb_per_s\": ", roofs->read);
  json_number(", \"peak_gmadd_per_s\": {\"q8\": ", roofs->peak[PEAK_Q8]);
  json_number(", \"q4\": ", roofs->peak[PEAK_Q4]);
  json_number(", \"f32\": ", roofs->peak[PEAK_F32]);
  putchar('}');
}

/* -- Kernels -------------------------------------------------------------------------------------------------------------- */

/* Matrices that come from memory are several, more than any cache holds, and taken in turn, as decoding does. */
enum {
  MAX_ROWS = 49152,
  MEMORY_COLS = 576,
  QUANTS = MAX_ROWS * MEMORY_COLS,
  COPIES = 8,
  MAX_WIDTH = 1536,
  MAX_VECTORS = 128,
  MAX_POSITIONS = 2048,
  HEAD_DIM = 64
};

/* Everything a kernel may work on. Numbers of ordinary size; their values do not matter, their number does. */
typedef struct {
  ml_qtensor q8, q4;
  int8_t *quants; /* COPIES * QUANTS */
  float *scales;  /* COPIES * QUANTS / ML_QK */
  int from_memory, turn;
  ml_qact act;          /* MAX_VECTORS of MAX_WIDTH */
  float *a, *b, *c;     /* results; two operands */
  float *keys, *p;      /* keys or values; what values are multiplied with */
  float *cos_t, *sin_t; /* of one angle, so that rotating again and again leaves numbers of ordinary size */
  int n, rows, vectors;
} workload;

/* The matrix whose turn it is; its quants take `bytes`. */
static const ml_qtensor *weights(workload *w, ml_qtensor *W, int bytes) {
  if (w->from_memory) {
    w->turn = (w->turn + 1) % (COPIES * (QUANTS / bytes));
    W->q = w->quants + (size_t)w->turn * (size_t)bytes;
    W->d = w->scales + (size_t)(w->turn % COPIES) * (QUANTS / ML_QK);
  }
  return W;
}

static const ml_qtensor *weights_q8(workload *w) {
  return weights(w, &w->q8, QUANTS);
}

static const ml_qtensor *weights_q4(workload *w) {
  return weights(w, &w->q4, QUANTS / 2);
}

/* A kernel: what it reads for each element of its matrix, its keys or values, or its vectors; and what its roof is where it does
 * a multiply-add for each element (and vector). */
typedef struct {
  const char *name;
  double element_bytes;
  peak_kind peak;
  void (*bound)(workload *);
  void (*scalar)(workload *);
} kernel;

/* One caller for the bound kernel and one for scalar C. */
#define BENCH(op, element_bytes, peak, call_bound, call_scalar) \
  static void bound_##op(workload *w) {                         \
    call_bound;                                                 \
  }                                                             \
  static void scalar_##op(workload *w) {                        \
    call_scalar;                                                \
  }                                                             \
  static const kernel kernel_##op = {#op, element_bytes, peak, bound_##op, scalar_##op};

#define Q8_BYTES ((ML_Q8_BLOCK_BYTES + (double)sizeof(float)) / ML_QK) /* of an element, with its part of the scale */
#define Q4_BYTES ((ML_Q4_BLOCK_BYTES + (double)sizeof(float)) / ML_QK)
#define F32_BYTES (double)sizeof(float)

BENCH(matvec_q8, Q8_BYTES, PEAK_Q8, ml_k_matvec_q8(w->a, weights_q8(w), &w->act, 0, w->rows, 0),
      ml_k_matvec_q8_scalar(w->a, weights_q8(w), &w->act, 0, w->rows, 0))
BENCH(matvec_q4, Q4_BYTES, PEAK_Q4, ml_k_matvec_q4(w->a, weights_q4(w), &w->act, 0, w->rows, 0),
      ml_k_matvec_q4_scalar(w->a, weights_q4(w), &w->act, 0, w->rows, 0))
BENCH(matmul_q8, Q8_BYTES, PEAK_Q8, ml_k_matmul_q8(w->a, (size_t)w->rows, &w->q8, &w->act, w->vectors, 0, w->rows),
      ml_k_matmul_q8_scalar(w->a, (size_t)w->rows, &w->q8, &w->act, w->vectors, 0, w->rows))
BENCH(matmul_q4, Q4_BYTES, PEAK_Q4, ml_k_matmul_q4(w->a, (size_t)w->rows, &w->q4, &w->act, w->vectors, 0, w->rows),
      ml_k_matmul_q4_scalar(w->a, (size_t)w->rows, &w->q4, &w->act, w->vectors, 0, w->rows))
BENCH(quantize_q8, F32_BYTES, NO_PEAK, ml_k_quantize_q8(&w->act, w->b, w->n), ml_k_quantize_q8_scalar(&w->act, w->b, w->n))
BENCH(rmsnorm, 2 * F32_BYTES, NO_PEAK, ml_k_rmsnorm(w->a, w->b, w->c, w->n, 1e-5f), ml_k_rmsnorm_scalar(w->a, w->b, w->c, w->n, 1e-5f))
BENCH(softmax, F32_BYTES, NO_PEAK, ml_k_softmax(w->a, w->n), ml_k_softmax_scalar(w->a, w->n))
BENCH(rope, F32_BYTES, NO_PEAK, ml_k_rope(w->a, w->a, w->cos_t, w->sin_t, HEAD_DIM, w->n / HEAD_DIM, 0),
      ml_k_rope_scalar(w->a, w->a, w->cos_t, w->sin_t, HEAD_DIM, w->n / HEAD_DIM, 0))
BENCH(silu_mul, 2 * F32_BYTES, NO_PEAK, memcpy(w->a, w->b, (size_t)w->n * sizeof(float));
      ml_k_silu_mul(w->a, w->c, w->n), memcpy(w->a, w->b, (size_t)w->n * sizeof(float)); ml_k_silu_mul_scalar(w->a, w->c, w->n))
BENCH(add, 2 * F32_BYTES, NO_PEAK, ml_k_add(w->a, w->b, w->n), ml_k_add_scalar(w->a, w->b, w->n))
BENCH(dot_f32, 2 * F32_BYTES, PEAK_F32, w->a[0] = ml_k_dot_f32(w->b, w->c, w->n), w->a[0] = ml_k_dot_f32_scalar(w->b, w->c, w->n))
BENCH(axpy_f32, 2 * F32_BYTES, PEAK_F32, ml_k_axpy_f32(w->a, 1e-6f, w->b, w->n), ml_k_axpy_f32_scalar(w->a, 1e-6f, w->b, w->n))
BENCH(scores_f32, F32_BYTES, PEAK_F32, ml_k_scores_f32(w->a, (size_t)w->rows, w->b, w->vectors, w->keys, w->rows, w->n, 0.125f),
      ml_k_scores_f32_scalar(w->a, (size_t)w->rows, w->b, w->vectors, w->keys, w->rows, w->n, 0.125f))
BENCH(mix_f32, F32_BYTES, PEAK_F32, ml_k_mix_f32(w->a, w->p, (size_t)w->rows, w->vectors, w->keys, w->rows, w->n),
      ml_k_mix_f32_scalar(w->a, w->p, (size_t)w->rows, w->vectors, w->keys, w->rows, w->n))

typedef struct {
  const kernel *kernel;
  int rows, cols;  /* of the matrix; positions and their elements; rows 0: a vector operation on cols elements */
  int vectors;     /* that the matrix, or each position, is multiplied with */
  int from_memory; /* or from the caches */
} kernel_row;

/* Shapes of SmolLM2-135M (576, 1536, vocabulary 49152, three queries of 64 for each key), and of two smaller models, whose rows have few
 * blocks or an odd number of them: stories15M (288, 768) and stories260K (64, 192). */
#define MATVEC(op)                                                                                  \
  {&kernel_##op, 576, 576, 1, 0}, {&kernel_##op, 1536, 576, 1, 0}, {&kernel_##op, 576, 1536, 1, 0}, \
      {&kernel_##op, MAX_ROWS, MEMORY_COLS, 1, 1}, {&kernel_##op, 768, 288, 1, 0}, {                \
    &kernel_##op, 192, 64, 1, 0                                                                     \
  }
#define MATMUL(op)                                                                                                 \
  {&kernel_##op, 1536, 576, 16, 0}, {&kernel_##op, 1536, 576, MAX_VECTORS, 0}, {&kernel_##op, 576, 1536, 16, 0}, { \
    &kernel_##op, 576, 1536, MAX_VECTORS, 0                                                                        \
  }
#define ATTENTION(op)                           \
  {&kernel_##op, 256, HEAD_DIM, 3, 0}, {        \
    &kernel_##op, MAX_POSITIONS, HEAD_DIM, 3, 0 \
  }
#define VECTOR(op, n) \
  { &kernel_##op, 0, n, 0, 0 }
static const kernel_row kernel_rows[] = {
    MATVEC(matvec_q8),    MATVEC(matvec_q4),    MATMUL(matmul_q8),     MATMUL(matmul_q4),      VECTOR(quantize_q8, 1536),
    VECTOR(rmsnorm, 576), VECTOR(softmax, 512), VECTOR(rope, 576),     VECTOR(silu_mul, 1536), VECTOR(add, 576),
    VECTOR(dot_f32, 64),  VECTOR(axpy_f32, 64), ATTENTION(scores_f32), ATTENTION(mix_f32),
};
#define KERNEL_ROWS (int)(sizeof kernel_rows / sizeof *kernel_rows)

/* Medians in seconds of the bound kernel and of scalar C, and what follows from them. */
typedef struct {
  double bound, scalar;
  double gbs, gmadds; /* G bytes and multiply-adds in a second; no multiply-adds: 0 */
  double share;       /* of the lower roof; 0: there is none */
  const char *roof;   /* its name */
} kernel_result;

/* Seconds of one call: enough calls to fill five milliseconds. */
static double time_call(void (*call)(workload *), workload *w) {
  long calls = 1;
  for (;;) {
    double start = os_milliseconds();
    for (long i = 0; i < calls; i++) {
      call(w);
    }
    double took = os_milliseconds() - start;
    if (took >= 5.0) {
      return took / 1000.0 / (double)calls;
    }
    calls = took > 0.1 ? (long)(6.0 / took * (double)calls) + 1 : calls * 16;
  }
}

/* The roofline: what memory feeds, or what can be computed, whichever is less. Data from the caches is not held up by memory. */
static void judge(const kernel_row *row, const roof_rates *roofs, kernel_result *result) {
  static const char *const names[] = {[PEAK_Q8] = "q8", [PEAK_Q4] = "q4", [PEAK_F32] = "f32"};
  double elements = (double)row->cols * (row->rows > 0 ? row->rows : 1), bytes = elements * row->kernel->element_bytes;
  result->gbs = bytes / result->bound * 1e-9;
  result->roof = "";
  if (row->kernel->peak == NO_PEAK) {
    return;
  }
  double madds = elements * (row->rows > 0 ? row->vectors : 1), roof = roofs->peak[row->kernel->peak];
  result->gmadds = madds / result->bound * 1e-9;
  if (!is_measured(roof) || (row->from_memory && !is_measured(roofs->read))) {
    return;
  }
  result->roof = names[row->kernel->peak];
  if (row->from_memory && roofs->read * madds / bytes < roof) {
    roof = roofs->read * madds / bytes;
    result->roof = "memory";
  }
  result->share = result->gmadds / roof;
}

/* Both sides in turn, so that a busy machine slows down both. 0 if interrupted. */
static int time_kernel(const kernel_row *row, workload *w, int rounds, kernel_result *result) {
  double bound[MAX_ROUNDS], scalar[MAX_ROUNDS];
  w->rows = w->q8.rows = w->q4.rows = row->rows;
  w->q8.cols = w->q4.cols = w->n = w->act.n = row->cols;
  w->vectors = row->vectors;
  w->from_memory = row->from_memory;
  for (int r = 0; r < rounds; r++) {
    bound[r] = time_call(row->kernel->bound, w);
    scalar[r] = time_call(row->kernel->scalar, w);
    if (os_interrupted()) {
      return 0;
    }
  }
  *result = (kernel_result){.bound = median(bound, rounds), .scalar = median(scalar, rounds)};
  return 1;
}

static void print_roof(const char *what, double gbs, double gmadds, const char *name) {
  printf("| %s | | |", what);
  print_cell(gbs, 1);
  print_cell(gmadds, 1);
  printf(" | %s | | |\n", name);
}

static void print_kernels_head(const roof_rates *roofs) {
  printf("| kernel, %s | shape | us | GB/s | G multiply-adds/s | share of its roof | roof | scalar us | times scalar |\n"
         "|---|---|---:|---:|---:|---:|---|---:|---:|\n",
         ml_isa_name());
  print_roof("a loop that only reads memory", roofs->read, 0, "memory");
  print_roof("a loop of multiply-adds of bytes", 0, roofs->peak[PEAK_Q8], "q8");
  print_roof("the same, weights of four bits", 0, roofs->peak[PEAK_Q4], "q4");
  print_roof("a loop of multiply-adds of floats", 0, roofs->peak[PEAK_F32], "f32");
}

static void print_kernel(const kernel_row *row, const kernel_result *result) {
  printf("| %s |", row->kernel->name);
  if (row->rows > 0) {
    printf(" %d x", row->rows);
  }
  printf(" %d", row->cols);
  if (row->vectors > 1) {
    printf(", %d vectors", row->vectors);
  }
  fputs(" |", stdout);
  print_cell(result->bound * 1e6, 3);
  print_cell(result->gbs, 2);
  print_cell(result->gmadds, 1);
  print_cell(result->share, 2);
  printf("%s%s |", result->roof[0] != '\0' ? " " : "", result->roof);
  print_cell(result->scalar * 1e6, 3);
  print_cell(result->scalar / result->bound, 2);
  putchar('\n');
}

static void json_kernel(const kernel_row *row, const kernel_result *result) {
  json_string("{\"op\": ", row->kernel->name);
  json_number(", \"rows\": ", row->rows);
  json_number(", \"cols\": ", row->cols);
  json_number(", \"vectors\": ", row->vectors);
  printf(", \"from_memory\": %s", row->from_memory ? "true" : "false");
  json_number(", \"us\": ", result->bound * 1e6);
  json_number(", \"gb_per_s\": ", result->gbs);
  json_number(", \"gmadd_per_s\": ", result->gmadds);
  json_number(", \"share\": ", result->share);
  if (is_measured(result->share)) {
    json_string(", \"roof\": ", result->roof);
  } else {
    fputs(", \"roof\": null", stdout);
  }
  json_number(", \"scalar_us\": ", result->scalar * 1e6);
  json_number(", \"ratio\": ", result->scalar / result->bound);
  putchar('}');
}

/* Everything that the rows above need; 0 if there is no memory for it. */
static int make_workload(workload *w, ml_arena *arena) {
  enum { SCALES = QUANTS / ML_QK, ACTIVATIONS = MAX_VECTORS * MAX_WIDTH };
  *w = (workload){0};
  for (int pass = 0; pass < 2; pass++) { /* to learn the size, then for real */
    w->quants = ml_arena_take(arena, COPIES * QUANTS, 1);
    w->scales = ml_arena_take(arena, COPIES * SCALES, sizeof(float));
    w->a = ml_arena_take(arena, ACTIVATIONS, sizeof(float));
    w->b = ml_arena_take(arena, MAX_WIDTH, sizeof(float));
    w->c = ml_arena_take(arena, MAX_WIDTH, sizeof(float));
    w->keys = ml_arena_take(arena, MAX_POSITIONS * HEAD_DIM, sizeof(float));
    w->p = ml_arena_take(arena, 3 * MAX_POSITIONS, sizeof(float));
    w->cos_t = ml_arena_take(arena, HEAD_DIM / 2, sizeof(float));
    w->sin_t = ml_arena_take(arena, HEAD_DIM / 2, sizeof(float));
    w->act.q = ml_arena_take(arena, ACTIVATIONS, 1);
    w->act.d = ml_arena_take(arena, ACTIVATIONS / ML_QK, sizeof(float));
    w->act.sums = ml_arena_take(arena, ACTIVATIONS / ML_QK, sizeof(int32_t));
    if (pass == 0 && ml_arena_allocate(arena, "kernels", NULL) != ML_OK) {
      fprintf(stderr, "ml_bench: no memory for %d bytes of weights\n", COPIES * QUANTS);
      return 0;
    }
  }
  for (int i = 0; i < QUANTS; i++) {
    w->quants[i] = (int8_t)((int64_t)i * 37 % 255 - 127);
  }
  for (int i = 1; i < COPIES; i++) {
    memcpy(w->quants + (size_t)i * QUANTS, w->quants, QUANTS);
  }
  for (int i = 0; i < COPIES * SCALES; i++) {
    w->scales[i] = 0.001f;
  }
  memset(w->a, 0, ACTIVATIONS * sizeof(float));
  for (int i = 0; i < MAX_WIDTH; i++) {
    w->b[i] = (float)(i * 53 % 201) * 0.01f - 1.0f;
    w->c[i] = (float)(i * 59 % 211) * 0.01f - 1.0f;
  }
  for (int i = 0; i < MAX_POSITIONS * HEAD_DIM; i++) {
    w->keys[i] = (float)(i * 61 % 201) * 0.01f - 1.0f;
  }
  for (int i = 0; i < 3 * MAX_POSITIONS; i++) {
    w->p[i] = 1e-6f;
  }
  for (int i = 0; i < HEAD_DIM / 2; i++) {
    w->cos_t[i] = 0.6f;
    w->sin_t[i] = 0.8f;
  }
  w->q8 = (ml_qtensor){.q = w->quants, .d = w->scales, .type = ML_Q8_0};
  w->q4 = (ml_qtensor){.q = w->quants, .d = w->scales, .type = ML_Q4_0};
  for (int i = 0; i < ACTIVATIONS; i += MAX_WIDTH) {
    ml_qact one = {.q = w->act.q + i, .d = w->act.d + i / ML_QK, .sums = w->act.sums + i / ML_QK, .n = MAX_WIDTH};
    ml_k_quantize_q8(&one, w->b, MAX_WIDTH);
  }
  return 1;
}

static int bench_kernels(const bench_options *o) {
  workload w;
  ml_arena arena = {0};
  kernel_result results[KERNEL_ROWS];
  if (!make_workload(&w, &arena)) {
    return ML_E_NOMEM;
  }
  roof_rates roofs = bench_roofs(1, o->rounds);
  if (!o->json) {
    print_kernels_head(&roofs);
  }
  /* In a table each row appears when it is known, as long as somebody reads. */
  for (int i = 0; i < KERNEL_ROWS && !os_interrupted() && (o->json || flush_output()); i++) {
    if (time_kernel(&kernel_rows[i], &w, o->rounds, &results[i])) {
      judge(&kernel_rows[i], &roofs, &results[i]);
      if (!o->json) {
        print_kernel(&kernel_rows[i], &results[i]);
      }
    }
  }
  ml_arena_free(&arena);
  if (os_interrupted()) {
    return OS_INTERRUPTED_STATUS;
  }
  if (o->json) {
    json_begin(o, 1, &roofs);
    for (int i = 0; i < KERNEL_ROWS && flush_output(); i++) {
      fputs(i == 0 ? ", \"kernels\": [\n  " : ",\n  ", stdout);
      json_kernel(&kernel_rows[i], &results[i]);
    }
    puts("\n]}");
  }
  return 0;
}

/* -- Model ---------------------------------------------------------------------------------------------------------------- */

/* A prompt is fed in as long stretches as a context processes at once, so that Ctrl-C need not wait for all of it. */
#define PROMPT_STRETCH 128

/* Tokens per second from an empty context; with every logit for decoding, without any but the last for a prompt. Ends early when
 * interrupted. */
static ml_status run_once(ml_context *context, int vocab, int tokens, int decoding, double *rate, ml_error *err) {
  const float *logits;
  ml_status status = ml_context_rewind(context, 0, err);
  double start = os_milliseconds();
  int step = decoding ? 1 : PROMPT_STRETCH;
  for (int i = 0; i < tokens && status == ML_OK && !os_interrupted(); i += step) {
    int32_t ids[PROMPT_STRETCH];
    int n = tokens - i < step ? tokens - i : step;
    for (int j = 0; j < n; j++) {
      ids[j] = (int32_t)((uint32_t)(i + j) * 7919u % (uint32_t)vocab);
    }
    status = ml_context_eval(context, ids, (size_t)n, err);
    if (status == ML_OK && (decoding || i + n == tokens)) {
      status = ml_context_logits(context, &logits, err);
    }
  }
  *rate = tokens * 1000.0 / (os_milliseconds() - start);
  return status;
}

/* What decoding reads of the file for each token: all of it but an embedding that is not the classifier too, of which it reads one row. */
static double bytes_per_token(const ml_model_info *info) {
  double bytes = (double)info->file_bytes;
  if (!info->shared_classifier) {
    double block_bytes = (info->embedding_type == ML_Q8_0 ? ML_Q8_BLOCK_BYTES : ML_Q4_BLOCK_BYTES) + (double)sizeof(float);
    bytes -= (info->vocab - 1.0) * info->dim / ML_QK * block_bytes;
  }
  return bytes;
}

/* Multiply-adds of weights for a prompt, for all of its tokens. Of the last layer nothing but keys, values and queries is computed for a
 * token that another follows in a stretch, and the classifier for the very last alone. */
static double prompt_madds(const ml_model_info *info, int tokens) {
  double heads = (double)info->dim * (info->dim + 2.0 * info->kv_dim), rest = (double)info->dim * (info->dim + 3.0 * info->hidden_dim);
  int stretches = (tokens + PROMPT_STRETCH - 1) / PROMPT_STRETCH;
  return tokens * (info->n_layers * heads + (info->n_layers - 1.0) * rest) + stretches * rest + (double)info->vocab * info->dim;
}

typedef struct {
  int threads, tokens;
  double load_ms, prompt, decode; /* medians; tokens/s */
  roof_rates roofs;
  double prompt_gmadds, prompt_share, decode_gbs, decode_share;
} model_result;

static void judge_model(const ml_model_info *info, model_result *result) {
  result->prompt_gmadds = result->prompt / result->tokens * prompt_madds(info, result->tokens) * 1e-9;
  result->prompt_share = result->prompt_gmadds / result->roofs.peak[info->weight_type == ML_Q8_0 ? PEAK_Q8 : PEAK_Q4];
  result->decode_gbs = result->decode * bytes_per_token(info) * 1e-9;
  result->decode_share = result->decode_gbs / result->roofs.read;
}

static void print_model(const bench_options *o, const ml_model_info *info, const model_result *result) {
  int is_q8 = info->weight_type == ML_Q8_0;
  printf("| model | build | threads | load ms | prompt tok/s | G multiply-adds/s | share of a loop of them | that loop | decode tok/s | "
         "weights GB/s | "
         "share of a loop that only reads | that loop |\n"
         "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n| %s, %s | %s | %d |",
         o->model, is_q8 ? "Q8_0" : "Q4_0", ml_isa_name(), result->threads);
  print_cell(result->load_ms, 1);
  print_cell(result->prompt, 1);
  print_cell(result->prompt_gmadds, 1);
  print_cell(result->prompt_share, 2);
  print_cell(result->roofs.peak[is_q8 ? PEAK_Q8 : PEAK_Q4], 1);
  print_cell(result->decode, 1);
  print_cell(result->decode_gbs, 1);
  print_cell(result->decode_share, 2);
  print_cell(result->roofs.read, 1);
  putchar('\n');
}

static void json_model(const bench_options *o, const ml_model_info *info, const model_result *result) {
  json_begin(o, result->threads, &result->roofs);
  json_string(", \"model\": {\n  \"path\": ", o->model);
  json_string(",\n  \"weight_type\": ", info->weight_type == ML_Q8_0 ? "Q8_0" : "Q4_0");
  json_number(", \"bytes_per_token\": ", bytes_per_token(info));
  json_number(", \"prompt_madds\": ", prompt_madds(info, result->tokens));
  json_number(", \"tokens\": ", result->tokens);
  json_number(",\n  \"load_ms\": ", result->load_ms);
  json_number(", \"prompt_tokens_per_s\": ", result->prompt);
  json_number(", \"prompt_gmadd_per_s\": ", result->prompt_gmadds);
  json_number(", \"prompt_share\": ", result->prompt_share);
  json_number(",\n  \"decode_tokens_per_s\": ", result->decode);
  json_number(", \"weights_gb_per_s\": ", result->decode_gbs);
  json_number(", \"decode_share\": ", result->decode_share);
  puts("\n}}");
}

static int bench_model(const bench_options *o) {
  ml_error err;
  ml_model *model = NULL;
  ml_context *context = NULL;
  ml_model_info info = {0};
  model_result result = {.tokens = o->tokens};
  double prompt[MAX_ROUNDS], decode[MAX_ROUNDS];
  double start = os_milliseconds();
  ml_status status = ml_model_open(o->model, 0, &model, &err);
  if (status == ML_OK) {
    ml_model_get_info(model, &info);
    if (result.tokens == 0) {
      result.tokens = info.max_seq < DEFAULT_TOKENS ? info.max_seq : DEFAULT_TOKENS;
    }
    status = ml_context_create(model, result.tokens, o->threads, &context, &err);
  }
  result.load_ms = os_milliseconds() - start;
  for (int r = -1; r < o->rounds && status == ML_OK; r++) { /* the first brings the weights into memory */
    status = run_once(context, info.vocab, result.tokens, 0, &prompt[r < 0 ? 0 : r], &err);
    if (status == ML_OK) {
      status = run_once(context, info.vocab, result.tokens, 1, &decode[r < 0 ? 0 : r], &err);
    }
  }
  if (status == ML_OK) {
    result.threads = ml_context_threads(context);
    result.roofs = bench_roofs(result.threads, o->rounds);
  }
  ml_context_free(context);
  ml_model_close(model);
  if (status != ML_OK) {
    fprintf(stderr, "ml_bench: %s\n", err.text);
    return (int)status;
  }
  if (os_interrupted()) {
    return OS_INTERRUPTED_STATUS;
  }
  if (o->threads > result.threads) {
    fprintf(stderr, "ml_bench: %d threads were asked for, %d worked\n", o->threads, result.threads);
  }
  result.prompt = median(prompt, o->rounds);
  result.decode = median(decode, o->rounds);
  judge_model(&info, &result);
  if (o->json) {
    json_model(o, &info, &result);
  } else {
    print_model(o, &info, &result);
  }
  return 0;
}

/* Ends the output: a full disk is an error, a closed pipe is not. */
static int finish(int status) {
  if (flush_output() && ferror(stdout)) {
    output_error = EIO; /* a write failed on the way, and not every C library tries again */
  }
  if (status == 0 && output_error != 0 && output_error != EPIPE) {
    fprintf(stderr, "ml_bench: standard output: writing failed: %s\n", strerror(output_error));
    return ML_E_IO;
  }
  return status;
}

int ml_main(int argc, char **argv) {
  bench_options o = {.rounds = 5};
  os_start();
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(arg, "--help") == 0) {
      fputs(usage, stdout);
      return finish(0);
    }
    if (strcmp(arg, "--version") == 0) {
      printf("ml_bench %s, %s, threads: %s\n", ml_version(), ml_isa_name(), ml_thread_model());
      return finish(0);
    }
    if (strcmp(arg, "--json") == 0) {
      o.json = 1;
      continue;
    }
    int ok = 1;
    if (strcmp(arg, "-t") == 0) {
      ok = read_count(arg, value, 1, 1024, &o.threads);
    } else if (strcmp(arg, "-n") == 0) {
      ok = read_count(arg, value, 1, 1 << 20, &o.tokens);
    } else if (strcmp(arg, "-r") == 0) {
      ok = read_count(arg, value, 1, MAX_ROUNDS, &o.rounds);
    } else if (arg[0] == '-' || o.model != NULL) {
      fprintf(stderr, "ml_bench: unknown argument \"%s\"; see ml_bench --help\n", arg);
      ok = 0;
    } else {
      o.model = arg;
      continue;
    }
    if (!ok) {
      return ML_E_ARG;
    }
    i++;
  }
  if (o.model == NULL && (o.threads != 0 || o.tokens != 0)) {
    fprintf(stderr, "ml_bench: -t and -n need a model; kernels are timed on one thread\n");
    return ML_E_ARG;
  }
  return finish(o.model != NULL ? bench_model(&o) : bench_kernels(&o));
}
