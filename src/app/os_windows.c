/* SPDX-License-Identifier: BSD-3-Clause
 * What the command line needs from the operating system, on Windows (os.c is for POSIX). */
#ifdef _WIN32
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "../core/native_clock.h"
#include "../core/windows_text.h"

/* -- Start, Ctrl-C ---------------------------------------------------------------------------------------------------- */

static UINT code_page_before; /* of the console's output; 0 = unchanged */
static volatile LONG interrupted;
static volatile LONG reading; /* the main thread waits for a pipe, which cannot be made to return */

static void restore_console(void) {
  if (code_page_before != 0) {
    SetConsoleOutputCP(code_page_before);
  }
}

/* Runs in a thread of its own. */
static BOOL WINAPI on_console_event(DWORD event) {
  if (event != CTRL_C_EVENT) {
    restore_console();
    return FALSE; /* the program ends */
  }
  InterlockedExchange(&interrupted, 1);
  if (reading) {
    restore_console();
    TerminateProcess(GetCurrentProcess(), OS_INTERRUPTED_STATUS); /* what was generated has been flushed */
  }
  return TRUE;
}

/* The console behind a stream, or NULL. */
static HANDLE console_of(FILE *file) {
  DWORD mode;
  int fd = _fileno(file);
  HANDLE handle = fd >= 0 ? (HANDLE)_get_osfhandle(fd) : INVALID_HANDLE_VALUE;
  return handle != INVALID_HANDLE_VALUE && GetConsoleMode(handle, &mode) ? handle : NULL;
}

void os_start(void) {
  FILE *streams[] = {stdin, stdout, stderr};
  for (int i = 0; i < 3; i++) {
    if (_fileno(streams[i]) >= 0) { /* a program without a console may have none */
      _setmode(_fileno(streams[i]), _O_BINARY);
    }
  }
  setvbuf(stdout, NULL, _IOFBF, BUFSIZ); /* to a console too, or characters would be written byte by byte; what must be seen is flushed */
  if ((console_of(stdout) != NULL || console_of(stderr) != NULL) && GetConsoleOutputCP() != CP_UTF8) {
    UINT before = GetConsoleOutputCP();
    if (SetConsoleOutputCP(CP_UTF8)) {
      code_page_before = before;
      atexit(restore_console);
    }
  }
  SetConsoleCtrlHandler(on_console_event, TRUE);
}

int os_interrupted(void) {
  return interrupted != 0;
}

void os_clear_interrupt(void) {
  InterlockedExchange(&interrupted, 0);
}

int os_is_terminal(FILE *file) {
  return console_of(file) != NULL;
}

/* -- Output ------------------------------------------------------------------------------------------------------------ */

/* As UTF-16: through the code page, Windows 7 reports a success with too few bytes written. */
static int write_console(HANDLE console, const char *bytes, size_t n) {
  wchar_t wide[1024];
  while (n > 0) {
    size_t part = n < 1024 ? n : 1024;
    while (part < n && part > 1020 && ((unsigned char)bytes[part] & 0xC0u) == 0x80u) {
      part--; /* not within a character */
    }
    int length = MultiByteToWideChar(CP_UTF8, 0, bytes, (int)part, wide, 1024);
    for (DWORD at = 0, written = 0; at < (DWORD)length; at += written) {
      if (!WriteConsoleW(console, wide + at, (DWORD)length - at, &written, NULL) || written == 0) {
        return EIO;
      }
    }
    bytes += part;
    n -= part;
  }
  return 0;
}

int os_write(FILE *file, const char *bytes, size_t n) {
  HANDLE console = console_of(file);
  if (console != NULL && n > 0) {
    fflush(file); /* what was printed before */
    return write_console(console, bytes, n);
  }
  errno = 0;
  _doserrno = 0;
  if (fwrite(bytes, 1, n, file) != n || fflush(file) != 0) {
    /* The C library makes EPIPE of ERROR_BROKEN_PIPE only, and a pipe without a reader has two more. */
    return _doserrno == ERROR_NO_DATA || _doserrno == ERROR_PIPE_NOT_CONNECTED ? EPIPE : errno != 0 ? errno : EIO;
  }
  return 0;
}

/* -- Input ------------------------------------------------------------------------------------------------------------- */

/* Reads a line that is typed, into *line as os_read_line does. 0 at the end of the input: Ctrl-Z at the beginning of a line. -1: Ctrl-C, or
 * no memory. */
static long read_typed_line(HANDLE console, char **line, size_t *capacity) {
  wchar_t *wide = NULL;
  DWORD n = 0, room = 0;
  int ended = 0;
  long result = -1;
  while (!ended) {
    if (n == room) {
      wchar_t *larger = realloc(wide, (room + 1024) * sizeof *wide);
      if (larger == NULL) {
        goto done;
      }
      wide = larger;
      room += 1024;
    }
    DWORD got = 0;
    SetLastError(0);
    BOOL ok = ReadConsoleW(console, wide + n, room - n, &got, NULL);
    if (got == 0 && GetLastError() == ERROR_OPERATION_ABORTED) {
      /* Ctrl-C. The handler runs in another thread: if it came later, it would interrupt what comes next. */
      for (int i = 0; i < 100 && !interrupted; i++) {
        Sleep(1);
      }
      InterlockedExchange(&interrupted, 1);
      errno = EINTR;
      goto done;
    }
    n += got;
    ended = !ok || got == 0 || wide[n - 1] == L'\n';
  }
  if (n == 0 || wide[0] == 0x1A) {
    result = 0;
    goto done;
  }
  int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, NULL, 0, NULL, NULL);
  if ((size_t)bytes > *capacity) {
    char *larger = realloc(*line, (size_t)bytes);
    if (larger == NULL) {
      goto done;
    }
    *line = larger;
    *capacity = (size_t)bytes;
  }
  result = WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, *line, bytes, NULL, NULL);
done:
  free(wide);
  return result;
}

/* fread, during which Ctrl-C ends the program. */
static size_t read_file(FILE *file, char *bytes, size_t n) {
  InterlockedExchange(&reading, 1);
  size_t got = interrupted ? 0 : fread(bytes, 1, n, file);
  InterlockedExchange(&reading, 0);
  return got;
}

size_t os_read(FILE *file, char *bytes, size_t n) {
  static char *line; /* that was typed; the first `given` of its bytes have been returned */
  static size_t capacity, given, length;
  HANDLE console = console_of(file);
  if (console == NULL) {
    return read_file(file, bytes, n);
  }
  if (given == length) {
    long typed = read_typed_line(console, &line, &capacity);
    given = 0;
    length = typed > 0 ? (size_t)typed : 0;
  }
  size_t got = length - given < n ? length - given : n;
  if (got > 0) {
    memcpy(bytes, line + given, got);
    given += got;
  }
  return got;
}

long os_read_line(FILE *file, char **line, size_t *capacity) {
  HANDLE console = console_of(file);
  if (console != NULL) {
    long typed = read_typed_line(console, line, capacity);
    return typed > 0 ? typed : -1;
  }
  size_t n = 0;
  char c;
  do {
    if (n == *capacity) {
      size_t room = *capacity > 0 ? 2 * *capacity : 256;
      char *larger = room <= LONG_MAX ? realloc(*line, room) : NULL;
      if (larger == NULL) {
        errno = ENOMEM;
        return -1;
      }
      *line = larger;
      *capacity = room;
    }
    if (read_file(file, &c, 1) == 0) {
      return n > 0 && !ferror(file) && !interrupted ? (long)n : -1;
    }
    (*line)[n++] = c;
  } while (c != '\n');
  return (long)n;
}

/* -- Files ------------------------------------------------------------------------------------------------------------- */

FILE *os_open(const char *path, const char *mode) {
  wchar_t wide_mode[8];
  size_t i = 0;
  for (; mode[i] != '\0' && i < 7; i++) {
    wide_mode[i] = (wchar_t)mode[i];
  }
  wide_mode[i] = L'\0';
  wchar_t *wide = ml_windows_path(path);
  if (wide == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  FILE *file = _wfopen(wide, wide_mode);
  int error = errno;
  free(wide);
  errno = error;
  return file;
}

int os_rename(const char *from, const char *to) {
  wchar_t *wide_from = ml_windows_path(from), *wide_to = ml_windows_path(to);
  int error = ENOMEM;
  if (wide_from != NULL && wide_to != NULL) {
    error = MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING) ? 0 : EACCES; /* nearly always: somebody has it open */
  }
  free(wide_from);
  free(wide_to);
  errno = error;
  return error == 0 ? 0 : -1;
}

int os_remove(const char *path) {
  wchar_t *wide = ml_windows_path(path);
  int result = wide != NULL ? _wremove(wide) : -1;
  free(wide);
  return result;
}

int os_is_missing(const char *path) {
  wchar_t *wide = ml_windows_path(path);
  int missing = 0;
  if (wide != NULL && GetFileAttributesW(wide) == INVALID_FILE_ATTRIBUTES) {
    missing = GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PATH_NOT_FOUND;
  }
  free(wide);
  return missing;
}

/* Opens what is at the path only to ask about it. `flags` beside those that open a folder too. INVALID_HANDLE_VALUE if it cannot be done. */
static HANDLE open_to_ask(const char *path, DWORD flags) {
  wchar_t *wide = ml_windows_path(path);
  HANDLE handle = INVALID_HANDLE_VALUE;
  if (wide != NULL) {
    handle = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                         FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
  }
  free(wide);
  return handle;
}

int os_is_special(const char *path) {
  HANDLE handle = open_to_ask(path, FILE_FLAG_OPEN_REPARSE_POINT);
  BY_HANDLE_FILE_INFORMATION info;
  if (handle == INVALID_HANDLE_VALUE) {
    return 0;
  }
  int plain = GetFileType(handle) == FILE_TYPE_DISK && GetFileInformationByHandle(handle, &info) &&
              (info.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT)) == 0;
  CloseHandle(handle);
  return !plain;
}

int os_is_same(const char *a, const char *b) {
  HANDLE first = open_to_ask(a, 0), second = open_to_ask(b, 0);
  BY_HANDLE_FILE_INFORMATION x, y;
  int same = first != INVALID_HANDLE_VALUE && second != INVALID_HANDLE_VALUE && GetFileInformationByHandle(first, &x) &&
             GetFileInformationByHandle(second, &y) && x.dwVolumeSerialNumber == y.dwVolumeSerialNumber &&
             x.nFileIndexHigh == y.nFileIndexHigh && x.nFileIndexLow == y.nFileIndexLow;
  if (first != INVALID_HANDLE_VALUE) {
    CloseHandle(first);
  }
  if (second != INVALID_HANDLE_VALUE) {
    CloseHandle(second);
  }
  return same;
}

/* -- Clocks, process ----------------------------------------------------------------------------------------------------- */

double os_milliseconds(void) {
  return (double)native_nanoseconds() * 1e-6;
}

uint64_t os_random_seed(void) {
  FILETIME now; /* 100 ns */
  LARGE_INTEGER counter;
  GetSystemTimeAsFileTime(&now);
  QueryPerformanceCounter(&counter);
  /* Processes started within one tick of the clock differ in their number. */
  uint64_t clock = ((uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime) * 100 + (uint64_t)counter.QuadPart;
  return clock + ((uint64_t)GetCurrentProcessId() << 40);
}

long os_process(void) {
  return (long)GetCurrentProcessId();
}

#endif
