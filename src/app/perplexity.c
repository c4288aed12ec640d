/* SPDX-License-Identifier: BSD-3-Clause
 * How well a model predicts a text. In double precision, by plain arithmetic only, so that every build prints the same. */
#include "perplexity.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"
#include "report.h"

#define LN2_HIGH 6.93147180369123816490e-01 /* 33 bits, so that a small multiple is exact */
#define LN2_LOW 1.90821492927058770002e-10
#define SQRT_HALF 0.70710678118654752440

/* 2^k for -1022 <= k <= 1023. */
static double power_of_two(int k) {
  uint64_t bits = (uint64_t)(k + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* e^x: infinity above 709, 0 below -708. */
static double exponential(double x) {
  if (!(x < 709.0)) {
    return x * DBL_MAX; /* also for NaN */
  }
  if (x < -708.0) {
    return 0.0;
  }
  int k = (int)(x * 1.44269504088896340736 + (x < 0 ? -0.5 : 0.5));
  double r = x - k * LN2_HIGH - k * LN2_LOW; /* at most 0.35 */
  double sum = 1.0;
  for (int i = 14; i > 0; i--) { /* Taylor: the next term is below 1e-18 */
    sum = 1.0 + r / i * sum;
  }
  return sum * power_of_two(k);
}

/* The natural logarithm of a normal positive number. */
static double logarithm(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int k = (int)(bits >> 52) - 1022;
  bits = (bits & 0xFFFFFFFFFFFFFu) | 1022ull << 52;
  memcpy(&x, &bits, sizeof x); /* 0.5 to 1 */
  if (x < SQRT_HALF) {
    x *= 2;
    k--;
  }
  double z = (x - 1) / (x + 1), square = z * z, sum = 0.0; /* log x = 2 artanh z, |z| < 0.172 */
  for (int i = 25; i > 0; i -= 2) {
    sum = sum * square + 1.0 / i;
  }
  return k * LN2_HIGH + (2 * z * sum + k * LN2_LOW);
}

/* -log of the probability that the logits give to an id. */
static double surprise(const float *logits, int32_t vocab, int32_t id) {
  double most = logits[0], sum = 0.0;
  for (int32_t i = 1; i < vocab; i++) {
    most = logits[i] > most ? logits[i] : most;
  }
  for (int32_t i = 0; i < vocab; i++) {
    sum += exponential(logits[i] - most);
  }
  return logarithm(sum) + (most - logits[id]);
}

typedef struct {
  size_t n;
  double mean, squares; /* of the distances to the mean (Welford) */
} score;

static void score_add(score *total, double value) {
  total->n++;
  double distance = value - total->mean;
  total->mean += distance / (double)total->n;
  total->squares += distance * (value - total->mean);
}

/* e to the mean, and its standard error: that of the mean, times the slope there. */
static double perplexity_of(const score *total) {
  return exponential(total->mean);
}

static double error_of(const score *total) {
  double variance = total->squares / ((double)total->n - 1) / (double)total->n;
  return variance > DBL_MIN ? exponential(0.5 * logarithm(variance)) * perplexity_of(total) : 0.0;
}

typedef struct {
  const int32_t *ids; /* n, of which `scored` are done or have nothing before them */
  size_t n, first, scored;
  int begins; /* windows begin with the id that begins a text */
  int show;   /* progress, on a terminal; `shown` is when it was printed last */
  double shown;
  score total;
  text_buffer windows; /* for --json */
} scoring;

/* One window: the ids from w->first on, as many as the context takes. */
static int score_window(session *s, scoring *w, size_t length) {
  ml_error err;
  int status = 0;
  size_t end = w->n - w->first < length ? w->n : w->first + length;
  score own = {0};
  if (ml_context_rewind(s->context, 0, &err) != ML_OK) {
    return report_error(&err);
  }
  const int32_t bos = ml_tokenizer_bos(s->tokenizer);
  /* The last id is scored and never fed. */
  for (size_t at = w->first + !w->begins, n; at < end && status == 0; at += n) {
    int32_t fed[SESSION_ROWS];
    n = end - at < SESSION_ROWS ? end - at : SESSION_ROWS;
    for (size_t i = 0; i < n; i++) {
      fed[i] = at + i == w->first ? bos : w->ids[at + i - 1];
    }
    if (os_interrupted()) {
      s->stop = STOP_INTERRUPTED;
      break;
    }
    status = session_eval_rows(s, fed, n);
    s->turn.prompt += n;
    for (size_t i = 0; i < n && status == 0; i++) {
      if (at + i >= w->scored) {
        double value = surprise(s->rows + i * (size_t)s->info.vocab, s->info.vocab, w->ids[at + i]);
        score_add(&own, value);
        score_add(&w->total, value);
      }
    }
    if (w->show && os_milliseconds() - w->shown > 100) {
      w->shown = os_milliseconds();
      fprintf(stderr, OS_CLEAR_LINE "perplexity: %zu of %zu tokens", at + n, w->n);
      if (w->total.n > 0) {
        fprintf(stderr, ", %.3f so far", perplexity_of(&w->total));
      }
    }
  }
  text_format(&w->windows, "%s{\"start\": %zu, \"tokens\": %zu, \"perplexity\": ", w->windows.n > 0 ? ", " : "", w->first, own.n);
  json_add_number(&w->windows, perplexity_of(&own));
  text_add(&w->windows, "}", 1);
  w->scored = end;
  return status;
}

static int print_result(session *s, const scoring *w) {
  double perplexity = perplexity_of(&w->total), error = error_of(&w->total);
  text_buffer line = {0};
  if (s->output == OUTPUT_JSON) {
    text_add(&line, "{\"perplexity\": ", 15);
    json_add_number(&line, perplexity);
    text_add(&line, ", \"error\": ", 11);
    json_add_number(&line, error);
    text_format(&line, ", \"tokens\": %zu, \"windows\": [", w->total.n);
    text_add(&line, w->windows.bytes, w->windows.n);
    line.failed |= w->windows.failed;
    text_add(&line, "], \"ms\": ", 9);
    json_add_number(&line, s->turn.prompt_ms);
    text_add(&line, ", ", 2);
    session_describe_model(s, &line);
    text_add(&line, "}", 1);
  } else {
    text_format(&line, "perplexity: %.3f +- %.3f (%zu tokens)", perplexity, error, w->total.n);
  }
  return session_write_line(s, &line);
}

int run_perplexity(session *s) {
  const char *path = s->options->perplexity;
  char *text = NULL;
  size_t n_bytes = 0;
  id_list ids = {0};
  scoring w = {.begins = ml_tokenizer_adds_bos(s->tokenizer), .show = !s->options->quiet && os_is_terminal(stderr)};
  size_t length = (size_t)ml_context_capacity(s->context) + 1 - (size_t)w.begins; /* the last id is not fed */
  int status = read_file(path, &text, &n_bytes);
  status = status == 0 ? ids_add_text(&ids, s->tokenizer, text, n_bytes, 0) : status;
  free(text);
  w.ids = ids.ids;
  w.n = ids.n;
  w.scored = w.begins ? 0 : 1;
  if (status == 0 && w.n < w.scored + 2) {
    status = report(ML_E_ARG, "%s: the text has %zu tokens, and there must be %zu at least", path, w.n, w.scored + 2);
  }
  double start = w.shown = os_milliseconds();
  while (status == 0 && s->stop != STOP_INTERRUPTED && w.scored < w.n) {
    status = score_window(s, &w, length);
    w.first += length / 2 > 0 ? length / 2 : 1;
  }
  if (w.show) {
    fputs(OS_CLEAR_LINE, stderr);
  }
  s->turn.prompt_ms = os_milliseconds() - start;
  s->total = s->turn;
  if (status == 0) {
    status = s->stop == STOP_INTERRUPTED ? OS_INTERRUPTED_STATUS : print_result(s, &w);
  }
  text_free(&w.windows);
  ids_free(&ids);
  return status;
}
