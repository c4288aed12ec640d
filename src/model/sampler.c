/* SPDX-License-Identifier: BSD-3-Clause
 * From logits to one id. Sums run in plain order over the sorted ids, so that every build draws the same. */
#include "sampler.h"

#include <float.h>
#include <string.h>

#include "../core/quant.h"
#include "../ops/ops.h"

/* Radix sort in three passes: a probability is at most 1, whose bits are below 2^30. */
#define DIGIT_BITS 10
#define DIGITS (1u << DIGIT_BITS)
#define PASSES 3

/* Each array starts on its own cache line. */
static size_t array_bytes(int32_t vocab) {
  return ((size_t)vocab * sizeof(float) + ML_ALIGN - 1) / ML_ALIGN * ML_ALIGN;
}

size_t ml_sampler_bytes(int32_t vocab) {
  return 3 * array_bytes(vocab); /* probabilities, and ids twice */
}

uint64_t mli_rng_seed(uint64_t seed) {
  return seed != 0 ? seed : 0x9E3779B97F4A7C15u; /* xorshift never leaves 0; this is 2^64 over the golden ratio */
}

/* xorshift64*, the generator of llama2.c: [0, 1) in steps of 2^-24. */
static float next_random(uint64_t *rng) {
  uint64_t x = mli_rng_seed(*rng);
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *rng = x;
  uint32_t high = (uint32_t)((x * 0x2545F4914F6CDD1Du) >> 32);
  return (float)(high >> 8) / 16777216.0f;
}

static uint32_t digit(float probability, int pass) {
  uint32_t bits;
  memcpy(&bits, &probability, sizeof bits);
  return DIGITS - 1 - (bits >> (pass * DIGIT_BITS) & (DIGITS - 1)); /* falling order */
}

/* sorted = the ids 0..n-1 in falling order of p, equal ones in rising order. The order of non-negative floats is the order of their bits;
 * each pass is stable. (qsort would allocate, and is not stable.) */
static void sort_ids(const float *p, int32_t n, int32_t *sorted, int32_t *other) {
  for (int32_t i = 0; i < n; i++) {
    other[i] = i;
  }
  for (int pass = 0; pass < PASSES; pass++) {
    int32_t place[DIGITS] = {0};
    for (int32_t i = 0; i < n; i++) {
      place[digit(p[i], pass)]++;
    }
    int32_t sum = 0;
    for (uint32_t d = 0; d < DIGITS; d++) {
      int32_t count = place[d];
      place[d] = sum;
      sum += count;
    }
    const int32_t *from = pass % 2 == 0 ? other : sorted;
    int32_t *to = pass % 2 == 0 ? sorted : other;
    for (int32_t i = 0; i < n; i++) {
      to[place[digit(p[from[i]], pass)]++] = from[i];
    }
  }
}

/* The largest logit, the lowest id on a tie; -1 if the logits have no softmax. */
static int32_t largest(const float *logits, int32_t vocab) {
  float highest = logits[0]; /* not logits[best], which would wait for best each time */
  int32_t best = 0;
  for (int32_t i = 0; i < vocab; i++) {
    float logit = logits[i];
    if (!(logit <= FLT_MAX)) {
      return -1;
    }
    if (logit > highest) {
      highest = logit;
      best = i;
    }
  }
  return highest >= -FLT_MAX ? best : -1;
}

static ml_status check(const ml_sampling *s, ml_error *err) {
  if (!(s->temperature >= 0.0f && s->temperature <= FLT_MAX)) {
    return ml_fail(err, ML_E_ARG, "temperature is %g; it must be 0 (greedy) or a positive finite number", (double)s->temperature);
  }
  if (!(s->top_p >= 0.0f && s->top_p <= 1.0f)) {
    return ml_fail(err, ML_E_ARG, "top_p is %g; it must be from 0 to 1 (1 = off)", (double)s->top_p);
  }
  if (s->top_k < 0) {
    return ml_fail(err, ML_E_ARG, "top_k is %d; it must be 0 (off) or a number of ids", (int)s->top_k);
  }
  if (!(s->min_p >= 0.0f && s->min_p <= 1.0f)) {
    return ml_fail(err, ML_E_ARG, "min_p is %g; it must be from 0 (off) to 1", (double)s->min_p);
  }
  if (!(s->repeat_penalty >= 0.0f && s->repeat_penalty <= FLT_MAX)) {
    return ml_fail(err, ML_E_ARG, "repeat_penalty is %g; it must be a positive finite number (0 or 1 = off)", (double)s->repeat_penalty);
  }
  return ML_OK;
}

/* Makes each of the recent ids less likely, once however often it is among them. */
static void penalize(float *logits, int32_t vocab, float penalty, const int32_t *recent, size_t n_recent) {
  for (size_t i = 0; i < n_recent; i++) {
    int32_t id = recent[i];
    size_t first = 0;
    while (recent[first] != id) {
      first++;
    }
    if (first == i && id >= 0 && id < vocab) {
      logits[id] = logits[id] > 0.0f ? logits[id] / penalty : logits[id] * penalty;
    }
  }
}

/* How many of the sorted ids are kept, and *sum of their probabilities. */
static int32_t cut(const float *p, const int32_t *sorted, int32_t vocab, const ml_sampling *s, float *sum) {
  int32_t limit = s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
  float least = s->min_p * p[sorted[0]];
  int32_t kept = 0;
  *sum = 0.0f;
  while (kept < limit && (kept == 0 || p[sorted[kept]] >= least)) {
    *sum += p[sorted[kept]];
    kept++;
    if (s->top_p < 1.0f && *sum >= s->top_p) {
      break;
    }
  }
  return kept;
}

ml_status ml_sampler_draw(const float *logits, int32_t vocab, const ml_sampling *sampling, const int32_t *recent, size_t n_recent,
                          uint64_t *rng, void *scratch, int32_t *id, ml_error *err) {
  ml_status status = check(sampling, err);
  if (status != ML_OK) {
    return status;
  }
  float temperature = sampling->temperature;
  float penalty = sampling->repeat_penalty;
  float *p = scratch;
  if (penalty != 0.0f && penalty != 1.0f && n_recent > 0) {
    memcpy(p, logits, (size_t)vocab * sizeof *p);
    penalize(p, vocab, penalty, recent, n_recent);
    logits = p;
  }
  int32_t best = largest(logits, vocab);
  if (best < 0) {
    return ml_fail(err, ML_E_NUMERIC,
                   "no id can be drawn: a logit is NaN or +infinity, or all are -infinity; "
                   "check the model with --verify");
  }
  if (temperature == 0.0f) {
    *id = best;
    return ml_succeed(err);
  }

  size_t stride = array_bytes(vocab);
  int32_t *sorted = (int32_t *)(void *)((char *)scratch + stride);
  int32_t *other = (int32_t *)(void *)((char *)scratch + 2 * stride);
  /* The largest goes to 0 before the division: logit / temperature alone overflows to +infinity at a temperature of 1e-38, and softmax
   * of that is NaN. What overflows here is -infinity, and its probability is rightly 0. */
  float max = logits[best];
  for (int32_t i = 0; i < vocab; i++) {
    p[i] = (logits[i] - max) / temperature;
  }
  ml_op_softmax(p, vocab);
  sort_ids(p, vocab, sorted, other);
  float sum;
  int32_t kept = cut(p, sorted, vocab, sampling, &sum);

  /* The last id needs no comparison: its running sum is `sum`, and the target is less. */
  float target = next_random(rng) * sum;
  float running = 0.0f;
  int32_t drawn = 0;
  while (drawn < kept - 1) {
    running += p[sorted[drawn]];
    if (running > target) {
      break;
    }
    drawn++;
  }
  *id = sorted[drawn];
  return ml_succeed(err);
}
