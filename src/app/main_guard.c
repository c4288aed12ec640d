/* SPDX-License-Identifier: BSD-3-Clause
 * Where every program starts: asks whether this CPU can run the build before any code of its ISA does.
 *
 * Compiled for the baseline of the architecture, so that on an older CPU this file still runs and says what is missing. There is
 * no way around it: --help and --version are refused too. */
#include "main_guard.h"

#include <stdio.h>

#include "../include/legacyml.h"

static int guarded_main(int argc, char **argv) {
  ml_error err;
  if (ml_isa_check(&err) != ML_OK) {
    const char *name = argc > 0 ? argv[0] : "legacyml";
    for (const char *c = name; *c != '\0'; c++) {
      if (*c == '/' || *c == '\\') {
        name = c + 1;
      }
    }
    fprintf(stderr, "%s: %s\n", name, err.text);
    return ML_E_ISA;
  }
  return ml_main(argc, argv);
}

#ifdef _WIN32

#include <stdlib.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* Arguments arrive as UTF-16 and go on as UTF-8, in one piece of memory that lives as long as the process. */
int wmain(int argc, wchar_t **wide) {
  size_t size = ((size_t)argc + 1) * sizeof(char *);
  for (int i = 0; i < argc; i++) {
    size += (size_t)WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
  }
  char **argv = malloc(size);
  if (argv == NULL) {
    fputs("not enough memory for the arguments\n", stderr);
    return ML_E_NOMEM;
  }
  char *text = (char *)(argv + argc + 1), *end = (char *)argv + size;
  for (int i = 0; i < argc; i++) {
    argv[i] = text;
    text += WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, text, (int)(end - text), NULL, NULL);
  }
  argv[argc] = NULL;
  return guarded_main(argc, argv);
}

#else

int main(int argc, char **argv) {
  return guarded_main(argc, argv);
}

#endif
