/* SPDX-License-Identifier: BSD-3-Clause
 * Errors are values with a sentence. */
#ifndef ML_CORE_STATUS_H
#define ML_CORE_STATUS_H

#include "../include/legacyml.h"

/* Fills err (NULL is allowed) and returns status, so that a failing function ends with `return ml_fail(err, ML_E_..., "...")`.
 * Text that does not fit is cut at a character boundary. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
ml_status
ml_fail(ml_error *err, ml_status status, const char *format, ...);

/* Marks success in err (NULL is allowed) and returns ML_OK. */
ml_status ml_succeed(ml_error *err);

#endif
