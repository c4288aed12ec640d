/* SPDX-License-Identifier: BSD-3-Clause
 * Errors of ml_run: one line on standard error. */
#ifndef ML_APP_REPORT_H
#define ML_APP_REPORT_H

#include "../core/status.h"

/* Prints "ml_run: ", the text and a newline on standard error and returns status, so that a failing function ends with
 * `return report(ML_E_..., "...")`. */
ML_PRINTF_LIKE(2, 3) int report(int status, const char *format, ...);

/* From now on sentences go to `text`, cut to its size, the last one stays, and nothing is printed; NULL: as before. */
void report_to(char *text, size_t size);

/* The same for an error of the library; returns its status. */
int report_error(const ml_error *err);

#endif
