/* SPDX-License-Identifier: BSD-3-Clause
 * Whole files in, and files out that appear under their name when they are complete, or not at all. */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os.h"
#include "report.h"

int output_file_open(output_file *out, const char *option, const char *path, const run_options *options) {
  if (os_is_same(path, options->model) || (options->tokenizer != NULL && os_is_same(path, options->tokenizer))) {
    return report(ML_E_ARG, "%s: %s is the model or the tokenizer itself; give another file", option, path);
  }
  out->path = path;
  if (!os_is_special(path)) {
    size_t size = strlen(path) + 32;
    out->temporary = malloc(size);
    if (out->temporary == NULL) {
      return report(ML_E_NOMEM, "not enough memory for a file name of %zu bytes", size);
    }
    snprintf(out->temporary, size, "%s.%ld.part", path, os_process());
  }
  out->file = os_open(out->temporary != NULL ? out->temporary : path, "wb");
  if (out->file == NULL) {
    int status = report(ML_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    free(out->temporary);
    out->temporary = NULL;
    return status;
  }
  return 0;
}

static int failed(const output_file *out) {
  return report(ML_E_IO, "%s: writing failed: %s", out->path, strerror(errno));
}

int output_file_write(output_file *out, const void *bytes, size_t n) {
  return fwrite(bytes, 1, n, out->file) == n ? 0 : failed(out);
}

int output_file_close(output_file *out, int status) {
  if (out->file != NULL) {
    if (fclose(out->file) != 0 && status == 0) {
      status = failed(out);
    }
    if (out->temporary != NULL && status == 0 && os_rename(out->temporary, out->path) != 0) {
      status = failed(out);
    }
    if (out->temporary != NULL && status != 0) {
      os_remove(out->temporary);
    }
  }
  free(out->temporary);
  memset(out, 0, sizeof *out);
  return status;
}

int read_file(const char *path, char **bytes, size_t *n_bytes) {
  int is_stdin = strcmp(path, "-") == 0;
  const char *name = is_stdin ? "standard input" : path;
  FILE *file = is_stdin ? stdin : os_open(path, "rb");
  size_t capacity = 0, n = 0, got = 0;
  int status = 0;
  *bytes = NULL;
  if (file == NULL) {
    return report(ML_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
  }
  do {
    if (n == capacity) {
      capacity = capacity > 0 ? 2 * capacity : 4096;
      char *larger = realloc(*bytes, capacity);
      if (larger == NULL) {
        status = report(ML_E_NOMEM, "not enough memory for %s, %zu bytes so far", name, n);
        break;
      }
      *bytes = larger;
    }
    got = os_read(file, *bytes + n, capacity - n);
    n += got;
    if (os_interrupted() && (got == 0 || ferror(file))) {
      status = OS_INTERRUPTED_STATUS;
    } else if (ferror(file)) {
      status = report(ML_E_IO, "%s: reading failed: %s", name, strerror(errno));
    }
  } while (status == 0 && got > 0 && !feof(file));
  if (!is_stdin) {
    fclose(file);
  }
  *n_bytes = n;
  return status;
}
