/* SPDX-License-Identifier: BSD-3-Clause
 * ml_bench: how fast the kernels of this build are beside the scalar ones, and how fast a model runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../config/ml_config.h"
#include "../include/legacyml.h"
#include "main_guard.h"
#include "os.h"

static const char usage[] = "usage: ml_bench [MODEL.mlb] [-t THREADS] [-n TOKENS] [-r ROUNDS] [--version] [--help]\n"
                            "\n"
                            "Without a model: every kernel at shapes of small models, this build and scalar C in turn, one thread.\n"
                            "With a model: tokens per second for a prompt and for decoding, and the bandwidth of its weights.\n"
                            "  -t THREADS  1 to 1024; default: what CPU affinity and the container's quota allow\n"
                            "  -n TOKENS   tokens of the prompt and of decoding, default 64 each\n"
                            "  -r ROUNDS   rounds; the median is printed, default 5\n";

#define MAX_ROUNDS 101
#define DEFAULT_TOKENS 64

typedef struct {
  const char *model;
  int threads, tokens, rounds;
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

/* -- Kernels -------------------------------------------------------------------------------------------------------------- */

/* Everything a kernel may work on. Numbers of ordinary size; their values do not matter, their number does. */
typedef struct {
  ml_qtensor q8, q4;
  ml_qact act;
  float *a, *b, *c;
  int n;
} workload;

typedef struct {
  const char *op;
  int rows, cols; /* rows 0: a vector operation on cols elements */
  void (*bound)(workload *);
  void (*scalar)(workload *);
} kernel_row;

/* One caller for the bound kernel and one for scalar C. */
#define BENCH(op, call_bound, call_scalar) \
  static void bound_##op(workload *w) {    \
    call_bound;                            \
  }                                        \
  static void scalar_##op(workload *w) {   \
    call_scalar;                           \
  }
BENCH(matvec_q8, ml_k_matvec_q8(w->a, &w->q8, &w->act, 0, w->q8.rows), ml_k_matvec_q8_scalar(w->a, &w->q8, &w->act, 0, w->q8.rows))
BENCH(matvec_q4, ml_k_matvec_q4(w->a, &w->q4, &w->act, 0, w->q4.rows), ml_k_matvec_q4_scalar(w->a, &w->q4, &w->act, 0, w->q4.rows))
BENCH(quantize_q8, ml_k_quantize_q8(&w->act, w->b, w->n), ml_k_quantize_q8_scalar(&w->act, w->b, w->n))
BENCH(rmsnorm, ml_k_rmsnorm(w->a, w->b, w->c, w->n, 1e-5f), ml_k_rmsnorm_scalar(w->a, w->b, w->c, w->n, 1e-5f))
BENCH(softmax, ml_k_softmax(w->a, w->n), ml_k_softmax_scalar(w->a, w->n))
BENCH(rope, ml_k_rope(w->a, w->a, w->b, w->c, 64, w->n / 64, 0), ml_k_rope_scalar(w->a, w->a, w->b, w->c, 64, w->n / 64, 0))
BENCH(silu_mul, memcpy(w->a, w->b, (size_t)w->n * sizeof(float));
      ml_k_silu_mul(w->a, w->c, w->n), memcpy(w->a, w->b, (size_t)w->n * sizeof(float)); ml_k_silu_mul_scalar(w->a, w->c, w->n))
BENCH(add, ml_k_add(w->a, w->b, w->n), ml_k_add_scalar(w->a, w->b, w->n))
BENCH(dot_f32, w->a[0] = ml_k_dot_f32(w->b, w->c, w->n), w->a[0] = ml_k_dot_f32_scalar(w->b, w->c, w->n))
BENCH(axpy_f32, ml_k_axpy_f32(w->a, 1e-6f, w->b, w->n), ml_k_axpy_f32_scalar(w->a, 1e-6f, w->b, w->n))

#define ROW(op, rows, cols) \
  { #op, rows, cols, bound_##op, scalar_##op }
static const kernel_row kernel_rows[] = {
    ROW(matvec_q8, 576, 576),  ROW(matvec_q8, 1536, 576), ROW(matvec_q8, 576, 1536), ROW(matvec_q8, 49152, 576),
    ROW(matvec_q4, 576, 576),  ROW(matvec_q4, 1536, 576), ROW(matvec_q4, 576, 1536), ROW(matvec_q4, 49152, 576),
    ROW(quantize_q8, 0, 1536), ROW(rmsnorm, 0, 576),      ROW(softmax, 0, 512),      ROW(rope, 0, 576),
    ROW(silu_mul, 0, 1536),    ROW(add, 0, 576),          ROW(dot_f32, 0, 64),       ROW(axpy_f32, 0, 64),
};
#define KERNEL_ROWS (int)(sizeof kernel_rows / sizeof *kernel_rows)

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

static int bench_kernels(const bench_options *o) {
  enum { MAX_ROWS = 49152, MAX_WIDTH = 1536, WIDEST = 576 };
  workload w = {.q8 = {.type = ML_Q8_0}, .q4 = {.type = ML_Q4_0}};
  size_t weights = (size_t)MAX_ROWS * WIDEST;
  int8_t *q = aligned_alloc(ML_ALIGN, weights);
  float *d = aligned_alloc(ML_ALIGN, weights / ML_QK * sizeof(float));
  float *floats = aligned_alloc(ML_ALIGN, 3 * MAX_ROWS * sizeof(float));
  int8_t *act_q = aligned_alloc(ML_ALIGN, MAX_WIDTH);
  float *act_d = aligned_alloc(ML_ALIGN, MAX_WIDTH * sizeof(float));
  if (q == NULL || d == NULL || floats == NULL || act_q == NULL || act_d == NULL) {
    fprintf(stderr, "ml_bench: no memory for %zu bytes of weights\n", weights);
    return ML_E_NOMEM;
  }
  for (size_t i = 0; i < weights; i++) {
    q[i] = (int8_t)(i * 37 % 255) != -128 ? (int8_t)(i * 37 % 255) : 0;
  }
  for (size_t i = 0; i < weights / ML_QK; i++) {
    d[i] = 0.001f;
  }
  for (size_t i = 0; i < 3 * MAX_ROWS; i++) {
    floats[i] = (float)(i * 53 % 201) * 0.01f - 1.0f;
  }
  w.q8.q = w.q4.q = q;
  w.q8.d = w.q4.d = d;
  w.act = (ml_qact){act_q, act_d, MAX_WIDTH};
  w.a = floats;
  w.b = floats + MAX_ROWS;
  w.c = floats + 2 * MAX_ROWS;
  ml_k_quantize_q8(&w.act, w.b, MAX_WIDTH);

  printf("| kernel, %s | shape | us | GB/s | GOPS | scalar us | times scalar |\n|---|---|---:|---:|---:|---:|---:|\n", ml_isa_name());
  for (int i = 0; i < KERNEL_ROWS; i++) {
    const kernel_row *row = &kernel_rows[i];
    w.q8.rows = w.q4.rows = row->rows;
    w.q8.cols = w.q4.cols = w.n = w.act.n = row->cols;
    double bound[MAX_ROUNDS], scalar[MAX_ROUNDS];
    for (int r = 0; r < o->rounds; r++) {
      bound[r] = time_call(row->bound, &w);
      scalar[r] = time_call(row->scalar, &w);
    }
    double fast = median(bound, o->rounds), slow = median(scalar, o->rounds);
    if (row->rows > 0) {
      double elements = (double)row->rows * row->cols;
      double bytes = elements * (strcmp(row->op, "matvec_q8") == 0 ? 36.0 : 20.0) / 32.0;
      printf("| %s | %d x %d | %.2f | %.1f | %.1f | %.2f | %.2f |\n", row->op, row->rows, row->cols, fast * 1e6, bytes / fast * 1e-9,
             2.0 * elements / fast * 1e-9, slow * 1e6, slow / fast);
    } else {
      printf("| %s | %d | %.3f | | | %.3f | %.2f |\n", row->op, row->cols, fast * 1e6, slow * 1e6, slow / fast);
    }
    if (fflush(stdout) != 0) {
      break; /* nobody reads: ml_main says why */
    }
  }
  free(q);
  free(d);
  free(floats);
  free(act_q);
  free(act_d);
  return 0;
}

/* -- Model ---------------------------------------------------------------------------------------------------------------- */

/* Tokens per second from an empty context; with every logit for decoding, without any but the last for a prompt. */
static ml_status run_once(ml_context *context, int vocab, int tokens, int decoding, double *rate, ml_error *err) {
  const float *logits;
  ml_status status = ml_context_rewind(context, 0, err);
  double start = os_milliseconds();
  for (int i = 0; i < tokens && status == ML_OK; i++) {
    int32_t token = (int32_t)((uint32_t)i * 7919u % (uint32_t)vocab);
    status = ml_context_eval(context, &token, 1, err);
    if (status == ML_OK && (decoding || i == tokens - 1)) {
      status = ml_context_logits(context, &logits, err);
    }
  }
  *rate = tokens * 1000.0 / (os_milliseconds() - start);
  return status;
}

static int bench_model(const bench_options *o) {
  ml_error err;
  ml_model *model = NULL;
  ml_context *context = NULL;
  double start = os_milliseconds();
  ml_status status = ml_model_open(o->model, 0, &model, &err);
  ml_model_info info = {0};
  if (status == ML_OK) {
    ml_model_get_info(model, &info);
    status = ml_context_create(model, o->tokens, o->threads, &context, &err);
  }
  double loaded = os_milliseconds() - start;
  double prompt[MAX_ROUNDS], decode[MAX_ROUNDS];
  for (int r = -1; r < o->rounds && status == ML_OK; r++) { /* the first brings the weights into memory */
    status = run_once(context, info.vocab, o->tokens, 0, &prompt[r < 0 ? 0 : r], &err);
    if (status == ML_OK) {
      status = run_once(context, info.vocab, o->tokens, 1, &decode[r < 0 ? 0 : r], &err);
    }
  }
  if (status == ML_OK) {
    double fast = median(decode, o->rounds);
    printf("| model | build | threads | load ms | prompt tok/s | decode tok/s | weights GB/s |\n|---|---|---:|---:|---:|---:|---:|\n"
           "| %s, %s | %s | %d | %.1f | %.1f | %.1f | %.1f |\n",
           o->model, info.weight_type == ML_Q8_0 ? "Q8_0" : "Q4_0", ml_isa_name(), (int)ml_context_threads(context), loaded,
           median(prompt, o->rounds), fast, fast * (double)info.file_bytes * 1e-9);
  } else {
    fprintf(stderr, "ml_bench: %s\n", err.text);
  }
  ml_context_free(context);
  ml_model_close(model);
  return (int)status;
}

/* Ends the output: a full disk is an error, a closed pipe is not. */
static int finish(int status) {
  if (status == 0 && (fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE) {
    fprintf(stderr, "ml_bench: standard output: writing failed: %s\n", strerror(errno));
    return ML_E_IO;
  }
  return status;
}

int ml_main(int argc, char **argv) {
  bench_options o = {.threads = 0, .tokens = DEFAULT_TOKENS, .rounds = 5};
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
  if (o.model == NULL && (o.threads != 0 || o.tokens != DEFAULT_TOKENS)) {
    fprintf(stderr, "ml_bench: -t and -n need a model; kernels are timed on one thread\n");
    return ML_E_ARG;
  }
  return finish(o.model != NULL ? bench_model(&o) : bench_kernels(&o));
}
