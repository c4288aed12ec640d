/* SPDX-License-Identifier: BSD-3-Clause
 * One aligned allocation, cut into pieces. Filled twice by the same code: first without memory to learn the size, then for real. */
#ifndef ML_CORE_ARENA_H
#define ML_CORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct ml_arena {
  uint8_t *base; /* NULL while measuring */
  uint64_t used; /* 64 bits also where size_t has 32, so that a sum cannot wrap */
} ml_arena;

/* The next count * size bytes, aligned to ML_ALIGN; NULL while measuring. count and size are below 2^31. */
void *ml_arena_take(ml_arena *arena, uint64_t count, uint64_t size);

/* Turns a measured arena into memory, not touched and so not zeroed. `what` names it in the message. */
ml_status ml_arena_allocate(ml_arena *arena, const char *what, ml_error *err);
void ml_arena_free(ml_arena *arena);

#endif
