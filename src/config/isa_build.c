/* SPDX-License-Identifier: BSD-3-Clause
 * What this build is, as data: compiled with the flags of the ISA, read by the guard before any code of the ISA runs. */
#include "../core/isa_check.h"
#include "isa_table.h"
#include "ml_config.h"

#define TEXT_(symbol) #symbol
#define TEXT(symbol) TEXT_(symbol)
#define BINDING(op) #op " " TEXT(ml_k_##op) "\n"

const uint32_t ml_build_required = ML_CPU_REQUIRED;
const char ml_build_isa[] = TEXT(ML_ISA);
const char ml_build_bindings[] = ML_FOR_EACH_KERNEL(BINDING);
