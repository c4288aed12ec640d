/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of ml_k_peak_*, in vector registers. The including file has defined
 *   ints                                          a register
 *   ints ints_set1(int i), int ints_any(ints a)   with i in every element; any of its elements
 *   ints step_q8(ints a, ints next, ints b, ints *sum), step_q4   the build's multiply-add, BYTE_MADDS at once: what becomes of a,
 *                  which is the sum itself or what is added to *sum. A factor is a or next, or compilers would multiply once and for
 *                  all; it is next where a copy of a would be needed
 * and likewise floats, floats_set1, floats_any, floats step_f32(floats a, floats b), FLOAT_MADDS.
 *
 * Steps that do not depend on each other hide the latency: ten of up to ten cycles where one starts in a cycle (pmaddubsw, pmaddwd),
 * fourteen of seven where two do (mulps, addps). With the rest they are nearly all of sixteen registers. */
#ifndef ML_KERNELS_VECTOR_PEAK_H
#define ML_KERNELS_VECTOR_PEAK_H

#include "../inline.h"
#include "../kernels.h"

/* X(number, the next, one of three sums). A64FX has latencies of nine; ARMv7 CPUs start one operation in a cycle at most. */
#define SIX(X, last) X(0, 1, s) X(1, 2, t) X(2, 3, u) X(3, 4, s) X(4, 5, t) X(5, last, u)
#define TEN(X, last) SIX(X, 6) X(6, 7, s) X(7, 8, t) X(8, 9, u) X(9, last, s)
#define FOURTEEN(X, last) TEN(X, 10) X(10, 11, t) X(11, 12, u) X(12, 13, s) X(13, last, t)
#define TWENTY(X) FOURTEEN(X, 14) X(14, 15, u) X(15, 16, s) X(16, 17, t) X(17, 18, u) X(18, 19, s) X(19, 0, t)
#if defined(__aarch64__) || defined(__AVX512F__) /* 32 registers */
#define EACH_INTS(X) TWENTY(X)
#define EACH_FLOATS(X) TWENTY(X)
#elif defined(__arm__)
#define EACH_INTS(X) SIX(X, 0)
#define EACH_FLOATS(X) SIX(X, 0)
#else
#define EACH_INTS(X) TEN(X, 0)
#define EACH_FLOATS(X) FOURTEEN(X, 0)
#endif
#define ONE(i, next, sum) +1

/* A step is complete before the next: GCC would take a few together, and go through the stack. */
#if !defined(__GNUC__) || defined(__clang__)
#define NOW(a) (void)0
#elif defined(__x86_64__)
#define NOW(a) __asm__ volatile("" : "+v"(a))
#else
#define NOW(a) __asm__ volatile("" : "+w"(a))
#endif

static volatile int peak_operand = 1; /* no compiler knows what is multiplied */

ML_INLINE double peak_bytes(long steps, int is_q4) {
  int operand = peak_operand;
  ints b = ints_set1(operand), s = b, t = b, u = b;
#define BEGIN(i, next, sum) ints a##i = ints_set1(operand + i);
#define STEP(i, next, sum)                                                          \
  a##i = is_q4 ? step_q4(a##i, a##next, b, &sum) : step_q8(a##i, a##next, b, &sum); \
  NOW(a##i);                                                                        \
  NOW(sum);
#define END(i, next, sum) result = ints_any(a##i);
  volatile int result = 0; /* or nothing of this would be needed */
  EACH_INTS(BEGIN)
  for (long n = 0; n < steps; n++) {
    EACH_INTS(STEP)
  }
  EACH_INTS(END)
  result = ints_any(s);
  result = ints_any(t);
  result = ints_any(u);
#undef BEGIN
#undef STEP
#undef END
  (void)result;
  return (double)steps * (EACH_INTS(ONE)) * (double)BYTE_MADDS;
}

double ml_k_peak_q8(long steps) {
  return peak_bytes(steps, 0);
}

double ml_k_peak_q4(long steps) {
  return peak_bytes(steps, 1);
}

double ml_k_peak_f32(long steps) {
  float operand = (float)peak_operand;
  floats b = floats_set1(0.5f * operand); /* with which a * b + b comes to rest at 1 */
#define BEGIN(i, next, sum) floats a##i = floats_set1(operand + i);
#define STEP(i, next, sum)  \
  a##i = step_f32(a##i, b); \
  NOW(a##i);
#define END(i, next, sum) result = floats_any(a##i);
  volatile float result = 0;
  EACH_FLOATS(BEGIN)
  for (long n = 0; n < steps; n++) {
    EACH_FLOATS(STEP)
  }
  EACH_FLOATS(END)
#undef BEGIN
#undef STEP
#undef END
  (void)result;
  return (double)steps * (EACH_FLOATS(ONE)) * (double)FLOAT_MADDS;
}

#endif
