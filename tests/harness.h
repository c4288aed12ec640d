/* SPDX-License-Identifier: BSD-3-Clause
 * Checks that are counted. A test program calls harness_start, its tests, and returns harness_finish; its last line is
 * "N passed, N failed". --seed N repeats a run with other random numbers. */
#ifndef ML_TESTS_HARNESS_H
#define ML_TESTS_HARNESS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  long passed, failed;
  uint64_t state; /* of the random numbers */
  int quiet;      /* failures are counted, not printed: they are expected */
} harness;

/* CHECK(condition, format, ...): counts; prints where and what if it does not hold. */
#define CHECK(condition, ...)                         \
  do {                                                \
    if (condition) {                                  \
      harness.passed++;                               \
    } else {                                          \
      harness.failed++;                               \
      if (!harness.quiet) {                           \
        printf("FAILED %s:%d: ", __FILE__, __LINE__); \
        printf(__VA_ARGS__);                          \
        printf("\n");                                 \
      }                                               \
    }                                                 \
  } while (0)

/* xorshift64: draw each number in a statement of its own, since compilers order function arguments differently. */
static inline uint32_t harness_random(void) {
  harness.state ^= harness.state << 13;
  harness.state ^= harness.state >> 7;
  harness.state ^= harness.state << 17;
  return (uint32_t)(harness.state >> 32);
}

/* e^x in double precision: the series of e^(x / 1024), squared ten times. */
static inline double exp_double(double x) {
  double r = x / 1024, sum = 1, term = 1;
  for (int k = 1; k < 20; k++) {
    term *= r / k;
    sum += term;
  }
  for (int i = 0; i < 10; i++) {
    sum *= sum;
  }
  return sum;
}

static inline void harness_start(int argc, char **argv) {
  harness.state = 20261130;
  if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
    harness.state = strtoull(argv[2], NULL, 10);
  } else if (argc != 1) {
    fprintf(stderr, "usage: %s [--seed N]\n", argv[0]);
    exit(2);
  }
  printf("seed %llu\n", (unsigned long long)harness.state);
  harness.state = harness.state * 0x9E3779B97F4A7C15u | 1;
}

static inline int harness_finish(void) {
  printf("%ld passed, %ld failed\n", harness.passed, harness.failed);
  return harness.failed != 0 || harness.passed == 0;
}

#endif
