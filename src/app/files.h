/* SPDX-License-Identifier: BSD-3-Clause
 * Whole files in, and files out that appear under their name when they are complete, or not at all. */
#ifndef ML_APP_FILES_H
#define ML_APP_FILES_H

#include <stdio.h>

#include "options.h"

/* Starts as {0}. What is written goes to a temporary file beside the one named. */
typedef struct {
  const char *path;
  char *temporary; /* NULL = `path` is a device, a pipe or a link and is written directly */
  FILE *file;      /* NULL = not open */
} output_file;

/* Functions return 0, or an exit status after a line on standard error. `option` is what names the path, for the message when it is the
 * model or the tokenizer itself. */
int output_file_open(output_file *out, const char *option, const char *path, const run_options *options);
int output_file_write(output_file *out, const void *bytes, size_t n);
/* Ends the file, if it is open: keeps it if `status` is 0, leaves nothing otherwise. Returns the status of the run. */
int output_file_close(output_file *out, int status);

/* Reads a whole file, byte for byte, into *bytes (malloc'd). "-" is standard input. */
int read_file(const char *path, char **bytes, size_t *n_bytes);

#endif
