/* SPDX-License-Identifier: BSD-3-Clause
 * Generated text on its way out: whole UTF-8 characters, piece by piece, up to a stop string.
 *
 * Bytes are held back while they may be the beginning of a stop string or of a character. What is written does not depend on how
 * the text is cut into pieces, and without a stop string it is the text byte for byte, valid UTF-8 or not. */
#ifndef ML_APP_STREAM_H
#define ML_APP_STREAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  int (*write)(void *to, const char *bytes, size_t n); /* returns 0 or an errno */
  void *to;
  const char *const *stops; /* n_stops texts, none of them empty */
  size_t n_stops;
  int skip_spaces; /* 1 = spaces are left out until another character has come */
  char *held;      /* n_held bytes that are not written yet */
  size_t n_held, capacity;
  uint64_t written, skipped; /* bytes */
  int stopped;               /* 1 = a stop string was found: neither it nor what followed is written */
} text_stream;

/* The stops must outlive the stream. */
void stream_begin(text_stream *stream, int (*write)(void *, const char *, size_t), void *to, const char *const *stops, size_t n_stops);
/* Takes the next n bytes of the text. Returns 0, or the errno of a failed write (ENOMEM: there was no room to hold the bytes). */
int stream_push(text_stream *stream, const char *bytes, size_t n);
/* Writes what is still held, as it is; frees the buffer. Returns as stream_push. */
int stream_end(text_stream *stream);

#endif
