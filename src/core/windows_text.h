/* SPDX-License-Identifier: BSD-3-Clause
 * Between our UTF-8 and the UTF-16 of Windows. */
#ifndef ML_CORE_WINDOWS_TEXT_H
#define ML_CORE_WINDOWS_TEXT_H
#ifdef _WIN32

#include <stddef.h>
#include <wchar.h>

/* A path for the functions of Windows that take UTF-16; one that is longer than they like is spelled so that they take it. malloc'd;
 * NULL: no memory. What is not UTF-8 becomes U+FFFD, which names no file. */
wchar_t *ml_windows_path(const char *path);

/* What the system says about an error of GetLastError, in UTF-8, without a newline. */
void ml_windows_message(unsigned long error, char *text, size_t size);

#endif
#endif
