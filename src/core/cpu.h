/* SPDX-License-Identifier: BSD-3-Clause
 * What the CPU and the system say about themselves, as plain data: reading is here, deciding is in isa_check.h. */
#ifndef ML_CORE_CPU_H
#define ML_CORE_CPU_H

#include <stdint.h>

/* Words that carry feature bits. x86: register of a CPUID leaf (7_1 = leaf 7, subleaf 1; EXT1 = leaf 0x80000001). */
enum {
  ML_WORD_1_ECX,
  ML_WORD_7_EBX,
  ML_WORD_7_ECX,
  ML_WORD_7_1_EAX,
  ML_WORD_EXT1_ECX,
  ML_WORD_HWCAP, /* ARM: AT_HWCAP of the auxiliary vector */
  ML_WORD_COUNT
};

#define ML_CPU_1_ECX_OSXSAVE (1u << 27) /* the system has switched XSAVE on, and XGETBV may be executed */

typedef struct ml_cpu_facts {
  uint32_t word[ML_WORD_COUNT];
  uint32_t max_leaf;         /* x86: highest basic CPUID leaf; words of leaves above it mean nothing */
  uint32_t max_subleaf_of_7; /* x86: highest subleaf of leaf 7 */
  uint32_t max_extended;     /* x86: highest extended leaf, 0x8000.... */
  uint64_t xcr0;             /* x86: register state that the system saves; 0 where OSXSAVE is off */
} ml_cpu_facts;

/* Asks this CPU. Executes nothing that a CPU of the architecture may lack. */
void ml_cpu_read(ml_cpu_facts *facts);

#endif
