/* SPDX-License-Identifier: BSD-3-Clause
 * The floating-point mode of the thread: round to nearest, subnormals kept, no traps. A host may have set another one. */
#ifndef ML_CORE_FLOAT_MODE_H
#define ML_CORE_FLOAT_MODE_H

#include <stdint.h>

#if defined(_MSC_VER) && !defined(__clang__)

typedef uint32_t ml_float_mode;

/* Declared here: the header of these is one of the intrinsics headers, which belong to the kernels. */
unsigned int _mm_getcsr(void);
void _mm_setcsr(unsigned int mode);
#pragma intrinsic(_mm_getcsr, _mm_setcsr)

/* Sets the default mode and returns what was set before. */
static inline ml_float_mode ml_float_mode_enter(void) {
  ml_float_mode before = _mm_getcsr();
  _mm_setcsr(0x1F80);
  return before;
}

static inline void ml_float_mode_leave(ml_float_mode before) {
  _mm_setcsr(before);
}

#elif defined(__x86_64__)

typedef uint32_t ml_float_mode;

/* Sets the default mode and returns what was set before. */
static inline ml_float_mode ml_float_mode_enter(void) {
  ml_float_mode before;
  const uint32_t standard = 0x1F80;
  __asm__ volatile("stmxcsr %0" : "=m"(before));
  __asm__ volatile("ldmxcsr %0" : : "m"(standard) : "memory");
  return before;
}

static inline void ml_float_mode_leave(ml_float_mode before) {
  __asm__ volatile("ldmxcsr %0" : : "m"(before) : "memory");
}

#elif defined(__aarch64__)

typedef uint64_t ml_float_mode;

static inline ml_float_mode ml_float_mode_enter(void) {
  ml_float_mode before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
  return before;
}

static inline void ml_float_mode_leave(ml_float_mode before) {
  __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}

#elif defined(__arm__)

typedef uint32_t ml_float_mode;

static inline ml_float_mode ml_float_mode_enter(void) {
  ml_float_mode before;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(before));
  __asm__ volatile("vmsr fpscr, %0" : : "r"(0) : "memory");
  return before;
}

static inline void ml_float_mode_leave(ml_float_mode before) {
  __asm__ volatile("vmsr fpscr, %0" : : "r"(before) : "memory");
}

#endif

#endif
