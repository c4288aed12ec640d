/* SPDX-License-Identifier: BSD-3-Clause
 * Can this CPU run this build? The decider works on facts, so that CPUs can be made up in tests. */
#ifndef ML_CORE_ISA_CHECK_H
#define ML_CORE_ISA_CHECK_H

#include "cpu.h"
#include "status.h"

/* Exported as data by the ISA-compiled side (config/isa_build.c), made from what its compiler predefines: the guard cannot ask for less
 * than the flags allowed. */
extern const uint32_t ml_build_required;
extern const char ml_build_isa[];
extern const char ml_build_bindings[];

/* Features that a program may use: the CPU has them and the system has enabled the registers they need. */
uint32_t ml_cpu_usable(const ml_cpu_facts *facts);
/* Features that the CPU says it has, enabled or not. */
uint32_t ml_cpu_present(const ml_cpu_facts *facts);

/* The best build for these facts; NULL if there is none. */
const char *ml_isa_best(const ml_cpu_facts *facts);

/* ML_OK, or ML_E_ISA with a sentence that names the build `isa`, what of `required` is missing, whether the CPU lacks it or the system
 * has not enabled it, and the package that fits. */
ml_status ml_isa_decide(const ml_cpu_facts *facts, const char *isa, uint32_t required, ml_error *err);

#endif
