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

static const char usage[] = "usage: ml_bench [MODEL.mlb] [-t THREADS] [-n TOKENS] [-r ROUNDS] [--json] [--version] [--help]\n"
                            "\n"
                            "Without a model: every kernel at shapes of small models, this build and scalar C in turn, one thread.\n"
                            "With a model: tokens per second for a prompt and for decoding, and the bandwidth of its weights.\n"
                            "Both also time a plain loop that only reads memory, with as many threads, to judge GB/s by.\n"
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

/* What both kinds of object begin with. */
static void json_begin(const bench_options *o, int threads, double read_gbs) {
  json_string("{\"version\": ", ml_version());
  json_string(", \"isa\": ", ml_isa_name());
  json_string(", \"thread_model\": ", ml_thread_model());
  json_number(", \"threads\": ", threads);
  json_number(", \"rounds\": ", o->rounds);
  json_number(", \"read_gb_per_s\": ", read_gbs);
}

/* -- Memory --------------------------------------------------------------------------------------------------------------- */

/* Far more than any cache holds, in pieces that threads take in turn. */
enum { READ_PIECES = 256, PIECE_BYTES = 1 << 20, PIECE_WORDS = PIECE_BYTES / (int)sizeof(size_t) };

typedef struct {
  size_t *words;                     /* READ_PIECES * PIECE_WORDS */
  volatile size_t sums[READ_PIECES]; /* of each piece; volatile, or a compiler that sees nobody use them could leave the reading out */
} read_work;

/* Plain C with a constant number of steps, which compilers turn into vectors of the build's ISA. Four places at once: a build without vectors
 * then waits for memory and not for its own loop, and CPUs read ahead in several places somewhat faster than in one. */
static void read_pieces(void *arg, int begin, int end) {
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

/* GB/s at which so many threads read memory, the median of the rounds; 0 if there is no memory to measure it with. */
static double bench_read(int n_threads, int rounds) {
  read_work work = {.words = malloc((size_t)READ_PIECES * PIECE_BYTES)};
  ml_threads *threads = NULL;
  double seconds[MAX_ROUNDS], rate = 0;
  if (work.words != NULL && ml_threads_create(n_threads, &threads, NULL) == ML_OK) {
    memset(work.words, 1, (size_t)READ_PIECES * PIECE_BYTES); /* or every page would be the same one of zeros */
    for (int r = -1; r < rounds && !os_interrupted(); r++) {  /* the first is not counted */
      double start = os_milliseconds();
      ml_threads_run(threads, read_pieces, &work, READ_PIECES, 1);
      seconds[r < 0 ? 0 : r] = (os_milliseconds() - start) / 1000.0;
    }
    rate = os_interrupted() ? 0 : (double)READ_PIECES * (double)PIECE_BYTES / median(seconds, rounds) * 1e-9;
  }
  ml_threads_free(threads);
  free(work.words);
  return rate;
}

/* -- Kernels -------------------------------------------------------------------------------------------------------------- */

/* Everything a kernel may work on. Numbers of ordinary size; their values do not matter, their number does. */
typedef struct {
  ml_qtensor q8, q4;
  ml_qact act;
  float *a, *b, *c;     /* results; two operands */
  float *cos_t, *sin_t; /* of one angle, so that rotating again and again leaves numbers of ordinary size */
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
BENCH(rope, ml_k_rope(w->a, w->a, w->cos_t, w->sin_t, 64, w->n / 64, 0), ml_k_rope_scalar(w->a, w->a, w->cos_t, w->sin_t, 64, w->n / 64, 0))
BENCH(silu_mul, memcpy(w->a, w->b, (size_t)w->n * sizeof(float));
      ml_k_silu_mul(w->a, w->c, w->n), memcpy(w->a, w->b, (size_t)w->n * sizeof(float)); ml_k_silu_mul_scalar(w->a, w->c, w->n))
BENCH(add, ml_k_add(w->a, w->b, w->n), ml_k_add_scalar(w->a, w->b, w->n))
BENCH(dot_f32, w->a[0] = ml_k_dot_f32(w->b, w->c, w->n), w->a[0] = ml_k_dot_f32_scalar(w->b, w->c, w->n))
BENCH(axpy_f32, ml_k_axpy_f32(w->a, 1e-6f, w->b, w->n), ml_k_axpy_f32_scalar(w->a, 1e-6f, w->b, w->n))

/* Shapes of SmolLM2-135M (576, 1536, vocabulary 49152), and of two smaller models, whose rows have few blocks or an odd number of them:
 * stories15M (288, 768) and stories260K (64, 192). */
#define ROW(op, rows, cols) \
  { #op, rows, cols, bound_##op, scalar_##op }
static const kernel_row kernel_rows[] = {
    ROW(matvec_q8, 576, 576), ROW(matvec_q8, 1536, 576), ROW(matvec_q8, 576, 1536), ROW(matvec_q8, 49152, 576), ROW(matvec_q8, 768, 288),
    ROW(matvec_q8, 192, 64),  ROW(matvec_q4, 576, 576),  ROW(matvec_q4, 1536, 576), ROW(matvec_q4, 576, 1536),  ROW(matvec_q4, 49152, 576),
    ROW(matvec_q4, 768, 288), ROW(matvec_q4, 192, 64),   ROW(quantize_q8, 0, 1536), ROW(rmsnorm, 0, 576),       ROW(softmax, 0, 512),
    ROW(rope, 0, 576),        ROW(silu_mul, 0, 1536),    ROW(add, 0, 576),          ROW(dot_f32, 0, 64),        ROW(axpy_f32, 0, 64),
};
#define KERNEL_ROWS (int)(sizeof kernel_rows / sizeof *kernel_rows)

/* Medians in seconds of the bound kernel and of scalar C, and what follows from them. */
typedef struct {
  double bound, scalar;
  double gbs, gops; /* of the weights of a matrix; 0 for a vector operation, whose data never leaves the cache */
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

/* Both sides in turn, so that a busy machine slows down both. 0 if interrupted. */
static int time_kernel(const kernel_row *row, workload *w, int rounds, kernel_result *result) {
  double bound[MAX_ROUNDS], scalar[MAX_ROUNDS];
  w->q8.rows = w->q4.rows = row->rows;
  w->q8.cols = w->q4.cols = w->n = w->act.n = row->cols;
  for (int r = 0; r < rounds; r++) {
    bound[r] = time_call(row->bound, w);
    scalar[r] = time_call(row->scalar, w);
    if (os_interrupted()) {
      return 0;
    }
  }
  *result = (kernel_result){.bound = median(bound, rounds), .scalar = median(scalar, rounds)};
  if (row->rows > 0) {
    double elements = (double)row->rows * row->cols;
    double block_bytes = (strcmp(row->op, "matvec_q8") == 0 ? ML_Q8_BLOCK_BYTES : ML_Q4_BLOCK_BYTES) + (double)sizeof(float);
    result->gbs = elements / ML_QK * block_bytes / result->bound * 1e-9;
    result->gops = 2.0 * elements / result->bound * 1e-9; /* a multiplication and an addition for each weight */
  }
  return 1;
}

static void print_kernel(const kernel_row *row, const kernel_result *result) {
  printf("| %s |", row->op);
  if (row->rows > 0) {
    printf(" %d x", row->rows);
  }
  printf(" %d |", row->cols);
  print_cell(result->bound * 1e6, 3);
  print_cell(result->gbs, 1);
  print_cell(result->gops, 1);
  print_cell(result->scalar * 1e6, 3);
  print_cell(result->scalar / result->bound, 2);
  putchar('\n');
}

static void json_kernel(const kernel_row *row, const kernel_result *result) {
  json_string("{\"op\": ", row->op);
  json_number(", \"rows\": ", row->rows);
  json_number(", \"cols\": ", row->cols);
  json_number(", \"us\": ", result->bound * 1e6);
  json_number(", \"gb_per_s\": ", result->gbs);
  json_number(", \"gops\": ", result->gops);
  json_number(", \"scalar_us\": ", result->scalar * 1e6);
  json_number(", \"ratio\": ", result->scalar / result->bound);
  putchar('}');
}

/* Everything that the rows above need; 0 if there is no memory for it. */
static int make_workload(workload *w, ml_arena *arena) {
  enum { MAX_ROWS = 49152, MAX_WIDTH = 1536, WEIGHTS = MAX_ROWS * 576, SCALES = WEIGHTS / ML_QK, HEAD_DIM = 64 };
  int8_t *q = NULL;
  float *d = NULL;
  for (int pass = 0; pass < 2; pass++) { /* to learn the size, then for real */
    q = ml_arena_take(arena, WEIGHTS, 1);
    d = ml_arena_take(arena, SCALES, sizeof(float));
    w->a = ml_arena_take(arena, MAX_ROWS, sizeof(float));
    w->b = ml_arena_take(arena, MAX_WIDTH, sizeof(float));
    w->c = ml_arena_take(arena, MAX_WIDTH, sizeof(float));
    w->cos_t = ml_arena_take(arena, HEAD_DIM / 2, sizeof(float));
    w->sin_t = ml_arena_take(arena, HEAD_DIM / 2, sizeof(float));
    w->act.q = ml_arena_take(arena, MAX_WIDTH, 1);
    w->act.d = ml_arena_take(arena, MAX_WIDTH / ML_QK, sizeof(float));
    if (pass == 0 && ml_arena_allocate(arena, "kernels", NULL) != ML_OK) {
      fprintf(stderr, "ml_bench: no memory for %d bytes of weights\n", WEIGHTS);
      return 0;
    }
  }
  for (int i = 0; i < WEIGHTS; i++) {
    q[i] = (int8_t)((int64_t)i * 37 % 255 - 127);
  }
  for (int i = 0; i < SCALES; i++) {
    d[i] = 0.001f;
  }
  memset(w->a, 0, MAX_ROWS * sizeof(float));
  for (int i = 0; i < MAX_WIDTH; i++) {
    w->b[i] = (float)(i * 53 % 201) * 0.01f - 1.0f;
    w->c[i] = (float)(i * 59 % 211) * 0.01f - 1.0f;
  }
  for (int i = 0; i < HEAD_DIM / 2; i++) {
    w->cos_t[i] = 0.6f;
    w->sin_t[i] = 0.8f;
  }
  w->q8 = (ml_qtensor){.q = q, .d = d, .type = ML_Q8_0};
  w->q4 = (ml_qtensor){.q = q, .d = d, .type = ML_Q4_0};
  w->act.n = MAX_WIDTH;
  ml_k_quantize_q8(&w->act, w->b, MAX_WIDTH);
  return 1;
}

static int bench_kernels(const bench_options *o) {
  workload w;
  ml_arena arena = {0};
  kernel_result results[KERNEL_ROWS];
  if (!make_workload(&w, &arena)) {
    return ML_E_NOMEM;
  }
  double read = bench_read(1, o->rounds);
  if (!o->json) {
    printf("| kernel, %s | shape | us | GB/s | GOPS | scalar us | times scalar |\n|---|---|---:|---:|---:|---:|---:|\n", ml_isa_name());
    printf("| a loop that only reads | %d MiB | |", READ_PIECES * PIECE_BYTES >> 20);
    print_cell(read, 1);
    puts(" | | |");
  }
  /* In a table each row appears when it is known, as long as somebody reads. */
  for (int i = 0; i < KERNEL_ROWS && !os_interrupted() && (o->json || flush_output()); i++) {
    if (time_kernel(&kernel_rows[i], &w, o->rounds, &results[i]) && !o->json) {
      print_kernel(&kernel_rows[i], &results[i]);
    }
  }
  ml_arena_free(&arena);
  if (os_interrupted()) {
    return OS_INTERRUPTED_STATUS;
  }
  if (o->json) {
    json_begin(o, 1, read);
    for (int i = 0; i < KERNEL_ROWS && flush_output(); i++) {
      fputs(i == 0 ? ", \"kernels\": [\n  " : ",\n  ", stdout);
      json_kernel(&kernel_rows[i], &results[i]);
    }
    puts("\n]}");
  }
  return 0;
}

/* -- Model ---------------------------------------------------------------------------------------------------------------- */

/* Tokens per second from an empty context; with every logit for decoding, without any but the last for a prompt. Ends early when
 * interrupted. */
static ml_status run_once(ml_context *context, int vocab, int tokens, int decoding, double *rate, ml_error *err) {
  const float *logits;
  ml_status status = ml_context_rewind(context, 0, err);
  double start = os_milliseconds();
  for (int i = 0; i < tokens && status == ML_OK && !os_interrupted(); i++) {
    int32_t token = (int32_t)((uint32_t)i * 7919u % (uint32_t)vocab);
    status = ml_context_eval(context, &token, 1, err);
    if (status == ML_OK && (decoding || i == tokens - 1)) {
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

typedef struct {
  int threads, tokens;
  double load_ms, prompt, decode, read; /* medians; tokens/s, tokens/s, GB/s */
} model_result;

static void print_model(const bench_options *o, const ml_model_info *info, const model_result *result) {
  printf("| model | build | threads | load ms | prompt tok/s | decode tok/s | weights GB/s | a loop that only reads GB/s |\n"
         "|---|---|---:|---:|---:|---:|---:|---:|\n| %s, %s | %s | %d |",
         o->model, info->weight_type == ML_Q8_0 ? "Q8_0" : "Q4_0", ml_isa_name(), result->threads);
  print_cell(result->load_ms, 1);
  print_cell(result->prompt, 1);
  print_cell(result->decode, 1);
  print_cell(result->decode * bytes_per_token(info) * 1e-9, 1);
  print_cell(result->read, 1);
  putchar('\n');
}

static void json_model(const bench_options *o, const ml_model_info *info, const model_result *result) {
  json_begin(o, result->threads, result->read);
  json_string(", \"model\": {\n  \"path\": ", o->model);
  json_string(",\n  \"weight_type\": ", info->weight_type == ML_Q8_0 ? "Q8_0" : "Q4_0");
  json_number(", \"bytes_per_token\": ", bytes_per_token(info));
  json_number(", \"tokens\": ", result->tokens);
  json_number(",\n  \"load_ms\": ", result->load_ms);
  json_number(", \"prompt_tokens_per_s\": ", result->prompt);
  json_number(", \"decode_tokens_per_s\": ", result->decode);
  json_number(", \"weights_gb_per_s\": ", result->decode * bytes_per_token(info) * 1e-9);
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
    result.read = bench_read(result.threads, o->rounds);
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
