/* SPDX-License-Identifier: BSD-3-Clause
 * Between our UTF-8 and the UTF-16 of Windows. */
#ifdef _WIN32
#include "windows_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static wchar_t *to_utf16(const char *text) {
  int n = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
  wchar_t *wide = n > 0 ? malloc((size_t)n * sizeof *wide) : NULL;
  if (wide != NULL) {
    MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, n);
  }
  return wide;
}

/* The path from the root, behind the prefix with which Windows takes more than MAX_PATH characters; NULL: no memory. */
static wchar_t *spell_long(const wchar_t *path, DWORD length) {
  static const wchar_t drive[] = L"\\\\?\\", share[] = L"\\\\?\\UNC\\";
  size_t room = sizeof share / sizeof *share;
  wchar_t *whole = malloc((room + length) * sizeof *whole);
  DWORD n = whole != NULL ? GetFullPathNameW(path, length, whole + room, NULL) : 0;
  if (n == 0 || n >= length) {
    free(whole);
    return NULL;
  }
  /* \\server\share loses its two backslashes, C:\ stays, and a path that has such a prefix keeps its own. */
  wchar_t *from = whole + room;
  if (from[0] == L'\\' && from[1] == L'\\' && (from[2] == L'?' || from[2] == L'.')) {
    memmove(whole, from, (wcslen(from) + 1) * sizeof *whole);
    return whole;
  }
  int is_share = from[0] == L'\\' && from[1] == L'\\';
  const wchar_t *prefix = is_share ? share : drive;
  size_t n_prefix = wcslen(prefix);
  from += is_share ? 2 : 0;
  memmove(whole + n_prefix, from, (wcslen(from) + 1) * sizeof *whole);
  memcpy(whole, prefix, n_prefix * sizeof *whole);
  return whole;
}

wchar_t *ml_windows_path(const char *path) {
  wchar_t *wide = to_utf16(path);
  DWORD length = wide != NULL ? GetFullPathNameW(wide, 0, NULL, NULL) : 0; /* with its end */
  if (length <= MAX_PATH) {
    return wide;
  }
  wchar_t *whole = spell_long(wide, length);
  free(wide);
  return whole;
}

void ml_windows_message(unsigned long error, char *text, size_t size) {
  wchar_t wide[256];
  DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK, NULL, error, 0, wide,
                           sizeof wide / sizeof *wide, NULL);
  while (n > 0 && (wide[n - 1] == L' ' || wide[n - 1] == L'.')) {
    n--;
  }
  int bytes = n > 0 ? WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, text, (int)size - 1, NULL, NULL) : 0;
  if (bytes > 0) {
    text[bytes] = '\0';
  } else {
    snprintf(text, size, "Windows error %lu", error);
  }
}

#endif
