/* SPDX-License-Identifier: BSD-3-Clause
 * What the command line needs from the operating system. */
#ifndef ML_APP_OS_H
#define ML_APP_OS_H

#include <stdint.h>
#include <stdio.h>

#define OS_INTERRUPTED_STATUS 130 /* exit status of a run that was ended with Ctrl-C: 128 + SIGINT */

/* Call first. Makes sure that descriptors 0 to 2 are taken, so that no file opened later becomes standard output by accident;
 * makes a closed pipe an error of the write instead of a signal; makes Ctrl-C set a flag (not where the caller has it ignored). */
void os_start(void);

/* Has Ctrl-C been pressed since the start or os_clear_interrupt? A blocking read ends early with EINTR when it is. */
int os_interrupted(void);
void os_clear_interrupt(void);

int os_is_terminal(FILE *file);

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
