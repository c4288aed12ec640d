/* SPDX-License-Identifier: BSD-3-Clause
 * Counts what the library allocates while it computes: nothing, after the context is made.
 *   tool_allocations MODEL THREADS */
#include <legacyml.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The C library's own functions under the names that its wrappers have; ours count and pass on. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static long allocations;

void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  allocations++;
  return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size) {
  allocations++;
  return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  allocations++;
  return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  allocations++;
  *out = __libc_memalign(alignment, size);
  return *out != NULL ? 0 : ENOMEM;
}

int main(int argc, char **argv) {
  ml_error err;
  ml_model *model = NULL;
  ml_context *context = NULL;
  if (argc != 3 || ml_model_open(argv[1], 0, &model, &err) != ML_OK ||
      ml_context_create(model, 0, atoi(argv[2]), &context, &err) != ML_OK) {
    fprintf(stderr, "usage: tool_allocations MODEL THREADS; %s\n", argc == 3 ? err.text : "");
    return 2;
  }
  long loading = allocations;
  const ml_sampling sampling = {.temperature = 0.9f, .top_p = 0.8f};
  uint64_t rng = ml_rng_seed(1);
  int32_t id = 1;
  while (ml_context_position(context) < ml_context_capacity(context)) {
    if (ml_context_eval(context, &id, 1, &err) != ML_OK || ml_context_sample(context, &sampling, &rng, &id, &err) != ML_OK) {
      fprintf(stderr, "%s\n", err.text);
      return 1;
    }
  }
  long computing = allocations - loading;
  ml_context_free(context);
  ml_model_close(model);
  printf("%ld while loading, %ld while computing\n", loading, computing);
  return loading > 0 && computing == 0 ? 0 : 1;
}
