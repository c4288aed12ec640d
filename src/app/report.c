/* SPDX-License-Identifier: BSD-3-Clause
 * Errors of ml_run: one line on standard error, or a sentence where a batch wants it. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#include "os.h"

static struct {
  char *text;
  size_t size;
} catcher;

void report_to(char *text, size_t size) {
  catcher.text = text;
  catcher.size = size;
}

int report(int status, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  if (catcher.text != NULL) {
    vsnprintf(catcher.text, catcher.size, format, args);
    va_end(args);
    return status;
  }
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
