/* SPDX-License-Identifier: BSD-3-Clause
 * What the command line needs from the operating system. */
#ifndef ML_APP_OS_H
#define ML_APP_OS_H

#include <stdint.h>
#include <stdio.h>

#define OS_INTERRUPTED_STATUS 130 /* exit status of a run that was ended with Ctrl-C: 128 + SIGINT */

/* The keys that end what is typed, and what clears the line of a terminal that the cursor is on: consoles before Windows 10 know no
 * escape sequences. */
#ifdef _WIN32
#define OS_END_KEYS "Ctrl-Z and Enter"
#define OS_CLEAR_LINE "\r                                        \r"
#else
#define OS_END_KEYS "Ctrl-D"
#define OS_CLEAR_LINE "\r\033[K"
#endif

/* Call first. Makes sure that descriptors 0 to 2 are taken, so that no file opened later becomes standard output by accident;
 * makes a closed pipe an error of the write instead of a signal; makes Ctrl-C set a flag (not where the caller has it ignored).
 * On Windows the standard streams become binary and the console UTF-8 until the program ends. */
void os_start(void);

/* Has Ctrl-C been pressed since the start or os_clear_interrupt? os_read and os_read_line, when they wait, end early with EINTR;
 * on Windows, where only a console's do, the whole program ends with OS_INTERRUPTED_STATUS. */
int os_interrupted(void);
void os_clear_interrupt(void);

int os_is_terminal(FILE *file);

/* fopen, rename over an existing file, and remove, of paths in UTF-8. */
FILE *os_open(const char *path, const char *mode);
int os_rename(const char *from, const char *to);
int os_remove(const char *path);

/* Writes n bytes, which do not end within a UTF-8 character, and flushes; n may be 0. Returns 0 or an errno: EPIPE where the reader has
 * gone. */
int os_write(FILE *file, const char *bytes, size_t n);
/* fread of bytes. */
size_t os_read(FILE *file, char *bytes, size_t n);

/* Is there nothing at this path? 0 also where that cannot be found out. */
int os_is_missing(const char *path);
/* Is there something other than a plain file at this path, which a file renamed to it would destroy: a device, a pipe, a folder, a link
 * such as /dev/stdout? */
int os_is_special(const char *path);
/* Do both paths lead to one file? */
int os_is_same(const char *a, const char *b);

/* Milliseconds of a clock that never goes back. */
double os_milliseconds(void);
/* A seed that differs from run to run. */
uint64_t os_random_seed(void);
/* The number of this process, for names of temporary files. */
long os_process(void);

/* Reads a line of any length, NULs too, into *line (malloc'd, grown as needed; starts as NULL with *capacity 0). Returns the number of
 * bytes, with the newline if there is one; -1 at the end of the input or on an error. */
long os_read_line(FILE *file, char **line, size_t *capacity);

#endif
