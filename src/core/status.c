/* SPDX-License-Identifier: BSD-3-Clause
 * Errors are values with a sentence. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

ml_status ml_fail(ml_error *err, ml_status status, const char *format, ...) {
  if (err == NULL) {
    return status;
  }
  va_list args;
  va_start(args, format);
  int n = vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  err->status = status;
  if (n >= (int)sizeof err->text) {
    /* Drop the bytes of a character that was cut in the middle. */
    size_t end = sizeof err->text - 1;
    while (end > 0 && ((unsigned char)err->text[end - 1] & 0xC0u) == 0x80u) {
      end--;
    }
    if (end > 0 && (unsigned char)err->text[end - 1] >= 0xC0u) {
      end--;
    }
    err->text[end] = '\0';
  }
  return status;
}

ml_status ml_succeed(ml_error *err) {
  if (err != NULL) {
    err->status = ML_OK;
    err->text[0] = '\0';
  }
  return ML_OK;
}

const char *ml_status_name(ml_status status) {
  switch (status) {
  case ML_OK: return "ML_OK";
  case ML_E_ARG: return "ML_E_ARG";
  case ML_E_IO: return "ML_E_IO";
  case ML_E_FORMAT: return "ML_E_FORMAT";
  case ML_E_SHAPE: return "ML_E_SHAPE";
  case ML_E_NOMEM: return "ML_E_NOMEM";
  case ML_E_ISA: return "ML_E_ISA";
  case ML_E_NUMERIC: return "ML_E_NUMERIC";
  }
  return "unknown status";
}
