/* SPDX-License-Identifier: BSD-3-Clause
 * Errors of ml_run: one line on standard error. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

int report(int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("ml_run: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return status;
}

int report_error(const ml_error *err) {
  return report((int)err->status, "%s", err->text);
}
