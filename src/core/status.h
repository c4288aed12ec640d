/* SPDX-License-Identifier: BSD-3-Clause
 * Errors are values with a sentence. */
#ifndef ML_CORE_STATUS_H
#define ML_CORE_STATUS_H

#include "../include/legacyml.h"

/* Lets a compiler compare arguments with the format. MinGW's GCC must be told which C library the format is for. */
#if defined(__MINGW32__) && !defined(__clang__)
#define ML_PRINTF_LIKE(format_at, first_at) __attribute__((format(gnu_printf, format_at, first_at)))
#elif defined(__GNUC__)
#define ML_PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define ML_PRINTF_LIKE(format_at, first_at)
#endif

/* Fills err (NULL is allowed) and returns status, so that a failing function ends with `return ml_fail(err, ML_E_..., "...")`.
 * Text that does not fit is cut at a character boundary. */
ML_PRINTF_LIKE(3, 4) ml_status ml_fail(ml_error *err, ml_status status, const char *format, ...);

/* Marks success in err (NULL is allowed) and returns ML_OK. */
ml_status ml_succeed(ml_error *err);

#endif
