/* SPDX-License-Identifier: BSD-3-Clause
 * The guard's decision. Compiled for the baseline of the architecture: it runs before anything is known about the CPU. */
#include "isa_check.h"

#include <stdio.h>
#include <string.h>

#include "../config/isa_table.h"

typedef struct {
  uint32_t id; /* ML_CPU_... */
  const char *text;
  int word, bit;
  uint64_t state; /* bits of XCR0 that must be set */
} cpu_feature;

typedef struct {
  const char *name;
  uint32_t features;
} isa_build;

static const cpu_feature features[] = {ML_CPU_FEATURES};
static const isa_build builds[] = {ML_ISA_BUILDS};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int word_exists(const ml_cpu_facts *facts, int word) {
#if defined(__x86_64__)
  switch (word) {
  case ML_WORD_1_ECX: return facts->max_leaf >= 1;
  case ML_WORD_7_EBX:
  case ML_WORD_7_ECX: return facts->max_leaf >= 7;
  case ML_WORD_7_1_EAX: return facts->max_leaf >= 7 && facts->max_subleaf_of_7 >= 1;
  case ML_WORD_EXT1_ECX: return facts->max_extended >= 0x80000001u;
  default: return 0;
  }
#else
  (void)facts;
  return word == ML_WORD_HWCAP;
#endif
}

uint32_t ml_cpu_present(const ml_cpu_facts *facts) {
  uint32_t present = 0;
  for (size_t i = 0; i < COUNT(features); i++) {
    const cpu_feature *f = &features[i];
    if (word_exists(facts, f->word) && (facts->word[f->word] >> f->bit & 1) != 0) {
      present |= f->id;
    }
  }
  return present;
}

uint32_t ml_cpu_usable(const ml_cpu_facts *facts) {
  uint32_t usable = ml_cpu_present(facts);
  uint64_t xcr0 = (facts->word[ML_WORD_1_ECX] & ML_CPU_1_ECX_OSXSAVE) != 0 ? facts->xcr0 : 0;
  for (size_t i = 0; i < COUNT(features); i++) {
    if ((features[i].state & xcr0) != features[i].state) {
      usable &= ~features[i].id;
    }
  }
  return usable;
}

const char *ml_isa_best(const ml_cpu_facts *facts) {
  uint32_t usable = ml_cpu_usable(facts);
  for (size_t i = 0; i < COUNT(builds); i++) {
    if ((builds[i].features & ~usable) == 0) {
      return builds[i].name;
    }
  }
  return NULL;
}

/* "AVX, AVX2, FMA" */
static void list(uint32_t set, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < COUNT(features); i++) {
    if ((set & features[i].id) != 0 && used < size) {
      int n = snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", features[i].text);
      used += n > 0 ? (size_t)n : 0;
    }
  }
}

ml_status ml_isa_decide(const ml_cpu_facts *facts, const char *isa, uint32_t required, ml_error *err) {
  uint32_t missing = required & ~ml_cpu_usable(facts);
  if (missing == 0) {
    return ml_succeed(err);
  }
  uint32_t absent = missing & ~ml_cpu_present(facts);
  const char *best = ml_isa_best(facts);
  char names[192], advice[96];
  list(absent != 0 ? absent : missing, names, sizeof names);
  if (best != NULL) {
    snprintf(advice, sizeof advice, "install legacyml-%s instead (conda install legacyml-%s)", best, best);
  } else {
    snprintf(advice, sizeof advice, "no build of legacyml runs on it");
  }
  if (absent != 0) {
    return ml_fail(err, ML_E_ISA, "this is the %s build of legacyml, and this CPU lacks %s; %s", isa, names, advice);
  }
  return ml_fail(err, ML_E_ISA,
                 "this is the %s build of legacyml; this CPU has %s, but the operating system or hypervisor has not enabled the "
                 "registers for it (XSAVE); %s",
                 isa, names, advice);
}
