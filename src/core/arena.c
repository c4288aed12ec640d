/* SPDX-License-Identifier: BSD-3-Clause
 * One aligned allocation, cut into pieces. */
#include "arena.h"

#include "aligned.h"

void *ml_arena_take(ml_arena *arena, uint64_t count, uint64_t size) {
  uint64_t at = arena->used;
  arena->used += (count * size + ML_ALIGN - 1) / ML_ALIGN * ML_ALIGN;
  return arena->base != NULL ? arena->base + at : NULL;
}

ml_status ml_arena_allocate(ml_arena *arena, const char *what, ml_error *err) {
  if (arena->used <= SIZE_MAX / 2) {
    arena->base = ml_aligned_alloc((size_t)arena->used);
  }
  if (arena->base == NULL) {
    return ml_fail(err, ML_E_NOMEM, "%s need %llu MiB of memory, which this process cannot have; a smaller context needs less", what,
                   (unsigned long long)((arena->used + (1u << 20) - 1) >> 20));
  }
  arena->used = 0;
  return ml_succeed(err);
}

void ml_arena_free(ml_arena *arena) {
  ml_aligned_free(arena->base);
  arena->base = NULL;
  arena->used = 0;
}
