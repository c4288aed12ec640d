/* SPDX-License-Identifier: BSD-3-Clause
 * Reads the CPU's feature words. Compiled for the baseline of the architecture. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "cpu.h"

#include <string.h>

#if defined(__x86_64__)

#if defined(_MSC_VER) && !defined(__clang__)

/* Declared here: the header of these is one of the intrinsics headers, which belong to the kernels. */
void __cpuidex(int regs[4], int leaf, int subleaf);
unsigned __int64 _xgetbv(unsigned index);
#pragma intrinsic(__cpuidex, _xgetbv)

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4]) {
  __cpuidex((int *)regs, (int)leaf, (int)subleaf);
}

static uint64_t xgetbv(void) {
  return _xgetbv(0);
}

#else

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4]) {
  __asm__ volatile("cpuid" : "=a"(regs[0]), "=b"(regs[1]), "=c"(regs[2]), "=d"(regs[3]) : "a"(leaf), "c"(subleaf));
}

/* An instruction that traps unless OSXSAVE is set. Spelled in bytes: assemblers want a flag for the mnemonic. */
static uint64_t xgetbv(void) {
  uint32_t low, high;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

#endif

void ml_cpu_read(ml_cpu_facts *facts) {
  uint32_t regs[4];
  memset(facts, 0, sizeof *facts);
  cpuid(0, 0, regs);
  facts->max_leaf = regs[0];
  if (facts->max_leaf >= 1) {
    cpuid(1, 0, regs);
    facts->word[ML_WORD_1_ECX] = regs[2];
  }
  if (facts->max_leaf >= 7) {
    cpuid(7, 0, regs);
    facts->max_subleaf_of_7 = regs[0];
    facts->word[ML_WORD_7_EBX] = regs[1];
    facts->word[ML_WORD_7_ECX] = regs[2];
    if (facts->max_subleaf_of_7 >= 1) {
      cpuid(7, 1, regs);
      facts->word[ML_WORD_7_1_EAX] = regs[0];
    }
  }
  cpuid(0x80000000u, 0, regs);
  facts->max_extended = regs[0];
  if (facts->max_extended >= 0x80000001u) {
    cpuid(0x80000001u, 0, regs);
    facts->word[ML_WORD_EXT1_ECX] = regs[2];
  }
  if ((facts->word[ML_WORD_1_ECX] & ML_CPU_1_ECX_OSXSAVE) != 0) {
    facts->xcr0 = xgetbv();
  }
}

#elif defined(__linux__)

#include <sys/auxv.h>

void ml_cpu_read(ml_cpu_facts *facts) {
  memset(facts, 0, sizeof *facts);
  facts->word[ML_WORD_HWCAP] = (uint32_t)getauxval(AT_HWCAP);
}

#else

/* Nothing can be asked: what the compiler was allowed to use is assumed to be there. */
void ml_cpu_read(ml_cpu_facts *facts) {
  memset(facts, 0, sizeof *facts);
  memset(facts->word, 0xff, sizeof facts->word);
}

#endif
