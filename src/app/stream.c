/* SPDX-License-Identifier: BSD-3-Clause
 * Generated text on its way out. */
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The number of bytes at the end of the text that begin a UTF-8 character and can still become one: 0 to 3. */
static size_t unfinished_character(const char *text, size_t n) {
  for (size_t k = 1; k <= 3 && k <= n; k++) {
    unsigned lead = (unsigned char)text[n - k];
    if (lead >= 0x80 && lead <= 0xBF) {
      continue;
    }
    size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 1;
    if (k >= length) {
      return 0;
    }
    if (k >= 2) {
      /* The second byte rules out spellings that are too long, surrogates and what lies above U+10FFFF. */
      unsigned second = (unsigned char)text[n - k + 1];
      unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
      unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
      if (second < least || second > most) {
        return 0;
      }
    }
    return k;
  }
  return 0;
}

/* The length of the longest end of the text that is the beginning of a stop string, but not a whole one. */
static size_t unfinished_stop(const text_stream *stream, const char *text, size_t n) {
  size_t longest = 0;
  for (size_t i = 0; i < stream->n_stops; i++) {
    size_t k = strlen(stream->stops[i]) - 1;
    for (k = k < n ? k : n; k > longest; k--) {
      if (memcmp(text + n - k, stream->stops[i], k) == 0) {
        longest = k;
      }
    }
  }
  return longest;
}

/* Where the stop string that is complete first begins, looking at ends beyond `from`; n if there is none. Of those that end in the
 * same place it is the longest. */
static size_t find_stop(const text_stream *stream, const char *text, size_t from, size_t n) {
  for (size_t end = from + 1; end <= n; end++) {
    size_t longest = 0;
    for (size_t i = 0; i < stream->n_stops; i++) {
      size_t length = strlen(stream->stops[i]);
      if (length > longest && length <= end && memcmp(text + end - length, stream->stops[i], length) == 0) {
        longest = length;
      }
    }
    if (longest > 0) {
      return end - longest;
    }
  }
  return n;
}

/* Writes the first n of the held bytes. After an error nothing is held any more. */
static int write_held(text_stream *stream, size_t n) {
  if (n == 0) {
    return 0;
  }
  int error = stream->write(stream->to, stream->held, n);
  if (error != 0) {
    stream->n_held = 0;
    return error;
  }
  stream->written += n;
  stream->n_held -= n;
  memmove(stream->held, stream->held + n, stream->n_held);
  return 0;
}

void stream_begin(text_stream *stream, int (*write)(void *, const char *, size_t), void *to, const char *const *stops, size_t n_stops) {
  memset(stream, 0, sizeof *stream);
  stream->write = write;
  stream->to = to;
  stream->stops = stops;
  stream->n_stops = n_stops;
}

int stream_push(text_stream *stream, const char *bytes, size_t n) {
  while (stream->skip_spaces && n > 0) {
    stream->skip_spaces = *bytes == ' ';
    stream->skipped += *bytes == ' ';
    n -= *bytes == ' ';
    bytes += *bytes == ' ';
  }
  if (stream->stopped || n == 0) {
    return 0;
  }
  if (n > stream->capacity - stream->n_held) {
    size_t capacity = 2 * (stream->n_held + n);
    char *held = realloc(stream->held, capacity);
    if (held == NULL) {
      return ENOMEM;
    }
    stream->held = held;
    stream->capacity = capacity;
  }
  size_t known = stream->n_held;
  memcpy(stream->held + known, bytes, n);
  stream->n_held += n;
  size_t stop = find_stop(stream, stream->held, known, stream->n_held);
  if (stop < stream->n_held) {
    stream->stopped = 1;
    stream->n_held = stop;
    return write_held(stream, stop);
  }
  size_t ready = stream->n_held - unfinished_stop(stream, stream->held, stream->n_held);
  return write_held(stream, ready - unfinished_character(stream->held, ready));
}

int stream_end(text_stream *stream) {
  int error = write_held(stream, stream->n_held);
  free(stream->held);
  stream->held = NULL;
  stream->n_held = stream->capacity = 0;
  return error;
}
