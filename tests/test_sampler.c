/* SPDX-License-Identifier: BSD-3-Clause
 * The sampler with chosen random values: which ids can be drawn, where one ends and the next begins, and what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model/sampler.h"
#include "../src/ops/ops.h"
#include "harness.h"

#define LARGE_VOCAB 32000
#define STEPS (1u << 24) /* random values are k / STEPS */
#define MULTIPLIER 0x2545F4914F6CDD1Du

static void *scratch;
static float uniform[LARGE_VOCAB]; /* 32,000 equal logits */

/* x as it was before x ^= x >> shift, or x ^= x << -shift. */
static uint64_t undo(uint64_t x, int shift) {
  uint64_t y = x;
  for (int i = 0; i < 64; i++) {
    y = x ^ (shift > 0 ? y >> shift : y << -shift);
  }
  return y;
}

/* The state whose next random value is k / STEPS: the generator backwards. */
static uint64_t state_for(uint32_t k) {
  uint64_t inverse = 1; /* of MULTIPLIER modulo 2^64, by Newton's method */
  for (int i = 0; i < 6; i++) {
    inverse *= 2 - MULTIPLIER * inverse;
  }
  uint64_t after = ((uint64_t)k << 40 | 0x123456789Au) * inverse;
  return undo(undo(undo(after, 27), -25), 12);
}

/* The id drawn with the random value k / STEPS; -1 on an error. */
static int32_t draw(const float *logits, int32_t vocab, float temperature, float top_p, uint32_t k) {
  ml_sampling sampling = {.temperature = temperature, .top_p = top_p};
  uint64_t rng = state_for(k);
  int32_t id = -1;
  ml_error err;
  ml_status status = ml_sampler_draw(logits, vocab, &sampling, NULL, 0, &rng, scratch, &id, &err);
  return status == ML_OK && err.status == ML_OK ? id : -1;
}

/* Values worked out with exact integers from the definition of xorshift64*. */
static void test_generator(void) {
  static const struct {
    uint64_t seed;
    uint32_t k[4];
  } cases[] = {
      {1, {0x47E4CE, 0xABCFA6, 0xB9D10D, 0x4DB418}},
      {UINT64_MAX, {0xF92CC9, 0x8FF484, 0x346C95, 0xC556CC}},
  };
  CHECK(mli_rng_seed(1) == 1 && mli_rng_seed(UINT64_MAX) == UINT64_MAX && mli_rng_seed(1u << 31) == 1u << 31, "a seed is not its state");
  CHECK(mli_rng_seed(0) != 0 && mli_rng_seed(0) == mli_rng_seed(0), "seed 0 has no state");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t rng = mli_rng_seed(cases[i].seed);
    for (int step = 0; step < 4; step++) {
      /* Of 32,000 equal ids the one at the fraction k / 2^24, up to the rounding of the sums. */
      ml_sampling sampling = {.temperature = 1.0f, .top_p = 1.0f};
      int32_t id = -1;
      ml_sampler_draw(uniform, LARGE_VOCAB, &sampling, NULL, 0, &rng, scratch, &id, NULL);
      double place = (double)cases[i].k[step] / STEPS * LARGE_VOCAB;
      CHECK(fabs(id - place) < 20.0, "seed %llu, draw %d: id %d, expected about %.0f", (unsigned long long)cases[i].seed, step, (int)id,
            place);
    }
  }
  /* A state of 0 would stay 0 for ever. */
  uint64_t zero = 0;
  uint64_t seeded = mli_rng_seed(0);
  ml_sampling sampling = {.temperature = 1.0f, .top_p = 1.0f};
  int32_t a = -1;
  int32_t b = -2;
  ml_sampler_draw(uniform, LARGE_VOCAB, &sampling, NULL, 0, &zero, scratch, &a, NULL);
  ml_sampler_draw(uniform, LARGE_VOCAB, &sampling, NULL, 0, &seeded, scratch, &b, NULL);
  CHECK(a == b && zero == seeded && zero != 0, "a state of 0 is not that of seed 0");
}

static void test_near_one(void) {
  /* The rounding of 32,000 sums must not lead beyond the last id, however near to 1 top_p and the random value are. */
  int32_t last = draw(uniform, LARGE_VOCAB, 1.0f, 1.0f, STEPS - 1);
  CHECK(last == LARGE_VOCAB - 1, "top_p 1, largest random value: id %d", (int)last);
  last = draw(uniform, LARGE_VOCAB, 1.0f, 0.9999999f, STEPS - 1);
  CHECK(last > LARGE_VOCAB - 50 && last < LARGE_VOCAB, "top_p 0.9999999, largest random value: id %d", (int)last);
  /* Of 30,037 equal ids the first 30,027 already sum to 1 in binary32; with top_p off the others stay. */
  CHECK(draw(uniform, 30037, 1.0f, 1.0f, STEPS - 1) == 30036, "top_p 1 cuts");
  CHECK(draw(uniform, LARGE_VOCAB, 1.0f, 1.0f, 0) == 0, "the smallest random value is not the first id");
  uint64_t rng = 12345;
  int32_t low = LARGE_VOCAB;
  int32_t high = -1;
  for (int i = 0; i < 500; i++) {
    ml_sampling sampling = {.temperature = 1.0f, .top_p = i % 2 == 0 ? 1.0f : 0.9999999f};
    int32_t id = -1;
    CHECK(ml_sampler_draw(uniform, LARGE_VOCAB, &sampling, NULL, 0, &rng, scratch, &id, NULL) == ML_OK, "draw %d failed", i);
    low = id < low ? id : low;
    high = id > high ? id : high;
  }
  CHECK(low >= 0 && low < 500 && high < LARGE_VOCAB && high > LARGE_VOCAB - 500, "draws from %d to %d", (int)low, (int)high);
  /* One id only. */
  CHECK(draw(uniform, 1, 1.0f, 1.0f, STEPS - 1) == 0 && draw(uniform, 1, 0.0f, 0.0f, 0) == 0, "a vocabulary of one");
}

/* Where the ids of .5, .3, .2 begin and end: at the cumulative shares of what top_p leaves. */
static void test_cuts(void) {
  static const float logits[3] = {-1.20397280f, -0.69314718f, -1.60943791f}; /* ids 0, 1, 2 have .3, .5, .2 */
  static const struct {
    float top_p;
    int kept;
    double ends[3]; /* of ids 1, 0, 2 */
  } cases[] = {
      {0.8f, 2, {0.625, 1.0, 1.0}}, {0.80001f, 3, {0.5, 0.8, 1.0}},   {0.1f, 1, {1.0, 1.0, 1.0}}, {0.0f, 1, {1.0, 1.0, 1.0}},
      {0.5f, 1, {1.0, 1.0, 1.0}},   {0.50001f, 2, {0.625, 1.0, 1.0}}, {1.0f, 3, {0.5, 0.8, 1.0}}, {0.79999f, 2, {0.625, 1.0, 1.0}},
  };
  static const int32_t order[3] = {1, 0, 2};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double begin = 0.0;
    for (int place = 0; place < cases[i].kept; place++) {
      /* 16 of 2^24 steps are room for the rounding of logits, softmax and sums. */
      uint32_t first = (uint32_t)(begin * STEPS) + (place > 0 ? 16u : 0u);
      uint32_t final = (uint32_t)(cases[i].ends[place] * STEPS) - (place + 1 < cases[i].kept ? 16u : 1u);
      int32_t a = draw(logits, 3, 1.0f, cases[i].top_p, first);
      int32_t b = draw(logits, 3, 1.0f, cases[i].top_p, final);
      CHECK(a == order[place] && b == order[place], "top_p %g: ids %d and %d where %d begins and ends", (double)cases[i].top_p, (int)a,
            (int)b, (int)order[place]);
      begin = cases[i].ends[place];
    }
    int seen[3] = {0, 0, 0};
    for (uint32_t k = 0; k < STEPS; k += STEPS / 1000) {
      int32_t id = draw(logits, 3, 1.0f, cases[i].top_p, k);
      CHECK(id >= 0 && id < 3, "top_p %g: id %d", (double)cases[i].top_p, (int)id);
      seen[id >= 0 && id < 3 ? id : 0] = 1;
    }
    for (int place = 0; place < 3; place++) {
      CHECK(seen[order[place]] == (place < cases[i].kept), "top_p %g: id %d was%s drawn", (double)cases[i].top_p, (int)order[place],
            seen[order[place]] ? "" : " not");
    }
  }
  /* Ties: the lower ids are the ones that stay. */
  CHECK(draw(uniform, 5, 1.0f, 0.5f, STEPS - 1) == 2 && draw(uniform, 5, 1.0f, 0.5f, 0) == 0, "ties at the cut");
}

/* Ids in the order in which they are drawn, and where each ends. */
typedef struct {
  const char *what;
  ml_sampling sampling;
  int n_recent, kept;
  int32_t recent[4];
  int32_t order[5];
  double ends[5];
} drawn_case;

/* Every kept id is drawn from where the one before it ends to where it ends itself, up to 16 of 2^24 steps, and no other. */
static void check_drawn(const float *logits, int32_t vocab, const drawn_case *c) {
  double begin = 0.0;
  for (int place = 0; place < c->kept; place++) {
    uint32_t ends[2] = {(uint32_t)(begin * STEPS) + (place > 0 ? 16u : 0u),
                        (uint32_t)(c->ends[place] * STEPS) - (place + 1 < c->kept ? 16u : 1u)};
    for (int i = 0; i < 2; i++) {
      uint64_t rng = state_for(ends[i]);
      int32_t id = -1;
      ml_error err;
      ml_status status = ml_sampler_draw(logits, vocab, &c->sampling, c->recent, (size_t)c->n_recent, &rng, scratch, &id, &err);
      CHECK(status == ML_OK && id == c->order[place], "%s: id %d (%s) where %d %s", c->what, (int)id, err.text, (int)c->order[place],
            i == 0 ? "begins" : "ends");
    }
    begin = c->ends[place];
  }
}

/* Each cut works on what the one before has left, and no probability changes by it. */
static void test_chain(void) {
  /* .10 .40 .05 .25 .20: the order is 1, 3, 4, 0, 2. */
  static const float logits[5] = {-2.30258509f, -0.91629073f, -2.99573227f, -1.38629436f, -1.60943791f};
#define ALL \
  { 1, 3, 4, 0, 2 }
#define ONE      \
  1, {0}, ALL, { \
    1.0          \
  }
#define TWO          \
  2, {0}, ALL, {     \
    0.40 / 0.65, 1.0 \
  }
#define THREE                     \
  3, {0}, ALL, {                  \
    0.40 / 0.85, 0.65 / 0.85, 1.0 \
  }
#define FIVE                    \
  5, {0}, ALL, {                \
    0.40, 0.65, 0.85, 0.95, 1.0 \
  }
#define CASE(text, k, m, p) text, {.temperature = 1.0f, .top_k = (k), .min_p = (m), .top_p = (p)}, 0
  static const drawn_case cases[] = {
      {CASE("top_k 1", 1, 0.0f, 1.0f), ONE},
      {CASE("top_k 2", 2, 0.0f, 1.0f), TWO},
      {CASE("top_k 3", 3, 0.0f, 1.0f), THREE},
      {CASE("top_k 5", 5, 0.0f, 1.0f), FIVE},
      {CASE("top_k 6", 6, 0.0f, 1.0f), FIVE},
      {CASE("top_k 2^31 - 1", INT32_MAX, 0.0f, 1.0f), FIVE},
      {CASE("min_p .01", 0, 0.01f, 1.0f), FIVE},
      {CASE("min_p .49", 0, 0.49f, 1.0f), THREE},
      {CASE("min_p .51", 0, 0.51f, 1.0f), TWO},
      {CASE("min_p .63", 0, 0.63f, 1.0f), ONE},
      {CASE("min_p 1", 0, 1.0f, 1.0f), ONE},
      {CASE("top_k 3, min_p .51", 3, 0.51f, 1.0f), TWO},
      {CASE("top_k 2, min_p .49", 2, 0.49f, 1.0f), TWO},
      /* .65 of .85 would be enough for .7, and .40 of .65 for .6. */
      {CASE("top_k 3, top_p .7", 3, 0.0f, 0.7f), THREE},
      {CASE("top_k 2, top_p .6", 2, 0.0f, 0.6f), TWO},
      {CASE("min_p .49, top_p .7", 0, 0.49f, 0.7f), THREE},
      {CASE("min_p .51, top_p .6", 0, 0.51f, 0.6f), TWO},
      {CASE("top_k 2, top_p .9", 2, 0.0f, 0.9f), TWO},
      {CASE("top_k 4, min_p .49, top_p .39", 4, 0.49f, 0.39f), ONE},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_drawn(logits, 5, &cases[i]);
  }
  /* Ties: the lower ids stay; as probable as the most probable is at least as probable. */
  static const drawn_case tied[] = {
      {CASE("top_k 2 of equals", 2, 0.0f, 1.0f), 2, {0}, {0, 1}, {0.5, 1.0}},
      {CASE("min_p 1 of equals", 0, 1.0f, 1.0f), 4, {0}, {0, 1, 2, 3}, {0.25, 0.5, 0.75, 1.0}},
  };
  check_drawn(uniform, 4, &tied[0]);
  check_drawn(uniform, 4, &tied[1]);
  /* 16 : 4 : 1 are 4 : 2 : 1 at temperature 2, where .4 of the largest leaves two. */
  static const float powers[3] = {2.77258872f, 1.38629436f, 0.0f};
  static const drawn_case warm = {
      "min_p .4 at temperature 2", {.temperature = 2.0f, .min_p = 0.4f, .top_p = 1.0f}, 0, 2, {0}, {0, 1}, {4.0 / 6, 1.0}};
  check_drawn(powers, 3, &warm);
#undef CASE
#undef ALL
#undef ONE
#undef TWO
#undef THREE
#undef FIVE
}

static void test_penalty(void) {
  /* ln 4, ln 2, 0 and -ln 2: 4 : 2 : 1 : 1/2. */
  static const float logits[4] = {1.38629436f, 0.69314718f, 0.0f, -0.69314718f};
#define PENALTY(r) \
  { .temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = (r) }
  static const drawn_case cases[] = {
      {"off", PENALTY(1.0f), 2, 4, {0, 3}, {0, 1, 2, 3}, {8.0 / 15, 12.0 / 15, 14.0 / 15, 1.0}},
      {"0 is off too", PENALTY(0.0f), 2, 4, {0, 3}, {0, 1, 2, 3}, {8.0 / 15, 12.0 / 15, 14.0 / 15, 1.0}},
      {"none recent", PENALTY(2.0f), 0, 4, {0}, {0, 1, 2, 3}, {8.0 / 15, 12.0 / 15, 14.0 / 15, 1.0}},
      /* 2 : 2 : 1 : 1/2, and 4 : 2 : 1 : 1/4: a negative logit is multiplied. */
      {"positive", PENALTY(2.0f), 1, 4, {0}, {0, 1, 2, 3}, {4.0 / 11, 8.0 / 11, 10.0 / 11, 1.0}},
      {"negative", PENALTY(2.0f), 1, 4, {3}, {0, 1, 2, 3}, {16.0 / 29, 24.0 / 29, 28.0 / 29, 1.0}},
      {"zero", PENALTY(2.0f), 1, 4, {2}, {0, 1, 2, 3}, {8.0 / 15, 12.0 / 15, 14.0 / 15, 1.0}},
      {"once", PENALTY(2.0f), 4, 4, {0, 0, 0, 0}, {0, 1, 2, 3}, {4.0 / 11, 8.0 / 11, 10.0 / 11, 1.0}},
      {"no such ids", PENALTY(2.0f), 3, 4, {-1, 4, 99}, {0, 1, 2, 3}, {8.0 / 15, 12.0 / 15, 14.0 / 15, 1.0}},
      /* sqrt 4 by a reward of 1/2: 4 : 4 : 1 : 1/2. */
      {"reward", PENALTY(0.5f), 1, 4, {1}, {0, 1, 2, 3}, {8.0 / 19, 16.0 / 19, 18.0 / 19, 1.0}},
      /* The penalty first: 2 : 2 : 1 : 1/2 leaves two to top_k. */
      {"and top_k",
       {.temperature = 1.0f, .top_p = 1.0f, .top_k = 2, .repeat_penalty = 4.0f},
       1,
       2,
       {0},
       {1, 0},
       {2.0 / (2.0 + 1.41421356), 1.0}},
  };
#undef PENALTY
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_drawn(logits, 4, &cases[i]);
  }
  /* Greedy takes the largest of what the penalty leaves, and leaves the logits of the caller alone. */
  static const struct {
    float penalty;
    int32_t recent[3], id;
  } greedy[] = {{2.1f, {0, 0, 0}, 1}, {1.9f, {0, 0, 0}, 0}, {2.0f, {0, 0, 0}, 0}, {3e38f, {0, 1, 1}, 0}, {1e-30f, {1, 1, 1}, 1}};
  for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
    const ml_sampling sampling = {.top_p = 1.0f, .repeat_penalty = greedy[i].penalty};
    uint64_t rng = 7;
    int32_t id = -1;
    float copy[4];
    memcpy(copy, logits, sizeof copy);
    ml_status status = ml_sampler_draw(copy, 4, &sampling, greedy[i].recent, 3, &rng, scratch, &id, NULL);
    CHECK(status == ML_OK && id == greedy[i].id && rng == 7 && memcmp(copy, logits, sizeof copy) == 0, "greedy, penalty %g: id %d",
          (double)greedy[i].penalty, (int)id);
  }
}

static void test_temperature(void) {
  static const float tied[6] = {-1.0f, 2.5f, 0.0f, 2.5f, 2.5f, -7.0f};
  static const float zeros[3] = {-0.0f, 0.0f, -0.0f};
  static const float huge[4] = {-3e38f, 3e38f, 2.9e38f, -INFINITY};
  ml_sampling greedy = {.temperature = 0.0f, .top_p = 1.0f};
  uint64_t rng = 0;
  int32_t id = -1;
  CHECK(ml_sampler_draw(tied, 6, &greedy, NULL, 0, &rng, NULL, &id, NULL) == ML_OK && id == 1 && rng == 0, "greedy: id %d", (int)id);
  greedy.temperature = -0.0f;
  CHECK(ml_sampler_draw(zeros, 3, &greedy, NULL, 0, &rng, NULL, &id, NULL) == ML_OK && id == 0 && rng == 0, "greedy on zeros: id %d",
        (int)id);
  /* The smallest temperatures are greedy too, without overflow, and share among tied maxima. */
  const float temperatures[] = {1e-38f, 1e-45f, 1e-30f};
  for (int i = 0; i < 3; i++) {
    CHECK(draw(tied, 6, temperatures[i], 1.0f, 0) == 1, "temperature %g", (double)temperatures[i]);
    CHECK(draw(tied, 6, temperatures[i], 1.0f, STEPS / 2) == 3, "temperature %g", (double)temperatures[i]);
    CHECK(draw(tied, 6, temperatures[i], 1.0f, STEPS - 1) == 4, "temperature %g", (double)temperatures[i]);
    CHECK(draw(huge, 4, temperatures[i], 1.0f, STEPS - 1) == 1, "temperature %g", (double)temperatures[i]);
  }
  CHECK(draw(huge, 4, 1.0f, 1.0f, STEPS - 1) == 1, "logits whose difference overflows");
  /* The largest temperature makes all ids alike: .25 each. */
  for (uint32_t i = 0; i < 4; i++) {
    CHECK(draw(tied, 4, 3e38f, 1.0f, i * (STEPS / 4) + 100) == (int32_t)i, "temperature 3e38, quarter %u", i);
  }
}

static void test_refused(void) {
  static const float logits[3] = {1.0f, 2.0f, 3.0f};
#define BAD(t, p) \
  { .temperature = (t), .top_p = (p) }
  static const ml_sampling bad[] = {
      BAD(-1.0f, 1.0f),
      BAD(-1e-45f, 1.0f),
      BAD(NAN, 1.0f),
      BAD(INFINITY, 1.0f),
      BAD(1.0f, -0.1f),
      BAD(1.0f, 1.00001f),
      BAD(1.0f, NAN),
      BAD(0.0f, NAN),
      BAD(0.0f, 2.0f),
      {.top_p = 1.0f, .top_k = -1},
      {.top_p = 1.0f, .min_p = -0.1f},
      {.top_p = 1.0f, .min_p = 1.00001f},
      {.top_p = 1.0f, .min_p = NAN},
      {.top_p = 1.0f, .repeat_penalty = -1.0f},
      {.top_p = 1.0f, .repeat_penalty = NAN},
      {.top_p = 1.0f, .repeat_penalty = INFINITY},
  };
#undef BAD
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t rng = 5;
    int32_t id = -7;
    ml_error err;
    ml_status status = ml_sampler_draw(logits, 3, &bad[i], NULL, 0, &rng, scratch, &id, &err);
    CHECK(status == ML_E_ARG && err.status == ML_E_ARG && err.text[0] != '\0' && rng == 5 && id == -7,
          "temperature %g, top_p %g: status %d", (double)bad[i].temperature, (double)bad[i].top_p, (int)status);
  }
  static const float broken[][3] = {{1.0f, NAN, 2.0f}, {NAN, 1.0f, 2.0f}, {1.0f, 2.0f, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    for (int t = 0; t < 2; t++) {
      ml_sampling sampling = {.temperature = (float)t, .top_p = 1.0f};
      uint64_t rng = 5;
      int32_t id = -7;
      ml_status status = ml_sampler_draw(broken[i], 3, &sampling, NULL, 0, &rng, scratch, &id, NULL);
      CHECK(status == ML_E_NUMERIC && rng == 5 && id == -7, "broken logits %zu at temperature %d: status %d", i, t, (int)status);
    }
  }
}

/* An id of probability 0 is never drawn: not by the largest random value, nor where top_p asks for more than there is. */
static void test_excluded(void) {
  static const float logits[6] = {-INFINITY, 0.0f, -INFINITY, 0.0f, -1e30f, -INFINITY};
  const float top_p[] = {0.9999999f, 1.0f};
  for (int i = 0; i < 2; i++) {
    CHECK(draw(logits, 6, 1.0f, top_p[i], 0) == 1 && draw(logits, 6, 1.0f, top_p[i], STEPS / 2 - 1) == 1, "first of two possible ids");
    CHECK(draw(logits, 6, 1.0f, top_p[i], STEPS / 2) == 3 && draw(logits, 6, 1.0f, top_p[i], STEPS - 1) == 3, "second of two possible ids");
  }
}

/* The definition, with a selection sort: probabilities over many magnitudes, subnormal ones and equal ones. */
static void test_order(void) {
  enum { N = 700 };
  static float logits[N];
  static float p[N];
  uint64_t rng = 99;
  for (int i = 0; i < N; i++) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    logits[i] = (float)(rng >> 58) * 0.13f - (i % 7 == 0 ? 90.0f : 0.0f);
  }
  memcpy(p, logits, sizeof p);
  float max = logits[0];
  for (int i = 1; i < N; i++) {
    max = logits[i] > max ? logits[i] : max;
  }
  for (int i = 0; i < N; i++) {
    p[i] -= max;
  }
  ml_op_softmax(p, N);
  int32_t order[N];
  int used[N] = {0};
  for (int place = 0; place < N; place++) {
    int best = -1;
    for (int i = 0; i < N; i++) {
      if (!used[i] && (best < 0 || p[i] > p[best])) {
        best = i;
      }
    }
    used[best] = 1;
    order[place] = best;
  }
  float sum = 0.0f;
  for (int place = 0; place < N; place++) {
    sum += p[order[place]];
  }
  for (uint32_t k = 0; k < STEPS; k += STEPS / 997) {
    float target = (float)k / (float)STEPS * sum;
    float running = 0.0f;
    int place = 0;
    while ((running += p[order[place]]) <= target) {
      place++;
    }
    int32_t id = draw(logits, N, 1.0f, 1.0f, k);
    CHECK(id == order[place], "random value %u: id %d, expected %d", k, (int)id, (int)order[place]);
  }
  /* Every place of the order, made visible by top_p: the last of the ids that just reach it. */
  float reached = 0.0f;
  for (int place = 0; place < N; place++) {
    float before = reached;
    reached += p[order[place]];
    if (reached > before && reached < 1.0f) {
      int32_t id = draw(logits, N, 1.0f, reached, STEPS - 1);
      CHECK(id == order[place], "place %d: id %d, expected %d", place, (int)id, (int)order[place]);
    }
  }
}

/* Chi-square over 100,000 draws; the seed is fixed, so this holds or does not. */
static void test_distribution(void) {
  enum { N = 4, DRAWS = 100000 };
  /* Logits of 16 : 9 : 4 : 1; at temperature 2 the square roots, 4 : 3 : 2 : 1. */
  static const float logits[N] = {-3.40119738f, -0.62860866f, -2.01490302f, -1.20397280f};
  static const double expected[2][N] = {{1.0 / 30, 16.0 / 30, 4.0 / 30, 9.0 / 30}, {0.1, 0.4, 0.2, 0.3}};
  for (int t = 0; t < 2; t++) {
    ml_sampling sampling = {.temperature = (float)(t + 1), .top_p = 1.0f};
    uint64_t rng = mli_rng_seed(2024);
    int count[N] = {0};
    for (int i = 0; i < DRAWS; i++) {
      int32_t id = 0;
      ml_sampler_draw(logits, N, &sampling, NULL, 0, &rng, scratch, &id, NULL);
      count[id]++;
    }
    double chi_square = 0.0;
    for (int i = 0; i < N; i++) {
      double mean = expected[t][i] * DRAWS;
      chi_square += (count[i] - mean) * (count[i] - mean) / mean;
    }
    CHECK(chi_square < 16.3, "temperature %d: chi-square %g with 3 degrees of freedom (1 in 1,000 is above 16.3)", t + 1, chi_square);
  }
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  size_t n_bytes = ml_sampler_bytes(LARGE_VOCAB);
  scratch = aligned_alloc(64, n_bytes);
  CHECK(n_bytes % 64 == 0 && scratch != NULL, "scratch of %zu bytes", n_bytes);
  if (scratch != NULL) {
    test_generator();
    test_near_one();
    test_cuts();
    test_chain();
    test_penalty();
    test_temperature();
    test_refused();
    test_excluded();
    test_order();
    test_distribution();
  }
  free(scratch);
  return harness_finish();
}
