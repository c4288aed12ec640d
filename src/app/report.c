/* SPDX-License-Identifier: BSD-3-Clause
 * Errors of ml_run: one line on standard error. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#include "os.h"

int report(int status, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fputs("ml_run: ", stderr);
  if (n > 0 && n < (int)sizeof text) {
    os_write(stderr, text, (size_t)n); /* whole, or a Windows console could see characters in pieces */
  } else {
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
  }
  fputc('\n', stderr);
  return status;
}

int report_error(const ml_error *err) {
  return report((int)err->status, "%s", err->text);
}
