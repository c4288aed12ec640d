/* SPDX-License-Identifier: BSD-3-Clause
 * Checks that are counted. A test program defines test_main, which calls harness_start, its tests, and returns harness_finish; its last line
 * is "N passed, N failed". --seed N repeats a run with other random numbers; --bench asks a program that can for times as well. A CPU that
 * cannot run the build skips the program with status 77 (harness_main.c). */
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
  int bench;      /* --bench was given */
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

int test_main(int argc, char **argv);

static inline void harness_start(int argc, char **argv) {
  harness.state = 20261130;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--bench") == 0) {
      harness.bench = 1;
    } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc && argv[i + 1][strspn(argv[i + 1], "0123456789")] == '\0') {
      harness.state = strtoull(argv[++i], NULL, 10);
    } else {
      fprintf(stderr, "usage: %s [--seed N] [--bench]\n", argv[0]);
      exit(2);
    }
  }
  printf("seed %llu\n", (unsigned long long)harness.state);
  harness.state = harness.state * 0x9E3779B97F4A7C15u | 1;
}

static inline int harness_finish(void) {
  printf("%ld passed, %ld failed\n", harness.passed, harness.failed);
  return harness.failed != 0 || harness.passed == 0;
}

#endif
