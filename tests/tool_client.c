/* SPDX-License-Identifier: BSD-3-Clause
 * A program that uses the library through its public header alone.
 *   tool_client logits MODEL        opens, evaluates four tokens, prints a hash of the logits; exits with the status
 *   tool_client float-mode MODEL    the same logits in a hostile floating-point mode, and the mode left as it was
 *   tool_client mode                the mode this program was started in */
#include <legacyml.h>

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
static uint32_t get_mode(void) {
  uint32_t mode;
  __asm__ volatile("stmxcsr %0" : "=m"(mode));
  return mode;
}

static void set_mode(uint32_t mode) {
  __asm__ volatile("ldmxcsr %0" : : "m"(mode));
}

#define STANDARD_MODE 0x1F80u
#define HOSTILE_MODE 0xFFC0u /* flush to zero, denormals are zero, round toward zero; exceptions masked */
#define STATUS_FLAGS 0x3Fu   /* exceptions that were seen: not part of the mode */
#else
#define STANDARD_MODE 0u
#define HOSTILE_MODE 0x3C00000u /* flush to zero, default NaN, round toward zero */
#if defined(__aarch64__)
#define STATUS_FLAGS 0u
static uint32_t get_mode(void) {
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return (uint32_t)mode;
}

static void set_mode(uint32_t mode) {
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode));
}
#else
#define STATUS_FLAGS 0xF800009Fu /* results of comparisons, exceptions */
static uint32_t get_mode(void) {
  uint32_t mode;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(mode));
  return mode;
}

static void set_mode(uint32_t mode) {
  __asm__ volatile("vmsr fpscr, %0" : : "r"(mode));
}
#endif
#endif

static int modes_changed;

/* The mode that the caller had set is there after every call. */
static ml_status same_mode(ml_status status, uint32_t expected, const char *call) {
  if ((get_mode() & ~STATUS_FLAGS) != (expected & ~STATUS_FLAGS)) {
    fprintf(stderr, "%s left mode %#x, it was %#x\n", call, get_mode(), expected);
    modes_changed++;
    set_mode(expected);
  }
  return status;
}

/* FNV-1a over the logits of four positions. */
static ml_status hash_logits(const char *path, int threads, uint32_t mode, uint64_t *hash, ml_error *err) {
  static const int32_t tokens[] = {1, 5, 3, 7};
  ml_model *model = NULL;
  ml_context *context = NULL;
  ml_model_info info;
  *hash = 14695981039346656037u;
  set_mode(mode);
  ml_status status = same_mode(ml_model_open(path, ML_MODEL_VERIFY, &model, err), mode, "ml_model_open");
  if (status == ML_OK) {
    ml_model_get_info(model, &info);
    status = same_mode(ml_context_create(model, 4, threads, &context, err), mode, "ml_context_create");
  }
  for (int i = 0; i < 4 && status == ML_OK; i++) {
    const float *logits;
    status = same_mode(ml_context_eval(context, &tokens[i], 1, err), mode, "ml_context_eval");
    if (status == ML_OK) {
      status = same_mode(ml_context_logits(context, &logits, err), mode, "ml_context_logits");
    }
    if (status == ML_OK) {
      const unsigned char *bytes = (const unsigned char *)logits;
      for (size_t b = 0; b < (size_t)info.vocab * sizeof *logits; b++) {
        *hash = (*hash ^ bytes[b]) * 1099511628211u;
      }
      uint64_t rng = ml_rng_seed(7);
      int32_t id;
      const ml_sampling sampling = {.temperature = 0.8f, .top_p = 0.9f};
      status = same_mode(ml_context_sample(context, &sampling, &rng, &id, err), mode, "ml_context_sample");
      *hash = (*hash ^ (uint64_t)id) * 1099511628211u;
    }
  }
  ml_context_free(context);
  ml_model_close(model);
  set_mode(STANDARD_MODE);
  return status;
}

int main(int argc, char **argv) {
  ml_error err;
  uint64_t hash;
  if (argc == 2 && strcmp(argv[1], "mode") == 0) {
    printf("%#x\n", get_mode() & ~STATUS_FLAGS);
    return 0;
  }
  if (argc != 3) {
    fprintf(stderr, "usage: tool_client logits|float-mode MODEL, or tool_client mode\n");
    return 2;
  }
  ml_status status = hash_logits(argv[2], 1, STANDARD_MODE, &hash, &err);
  if (status != ML_OK) {
    fprintf(stderr, "%s\n", err.text);
    return (int)status;
  }
  printf("%016llx\n", (unsigned long long)hash);
  if (strcmp(argv[1], "float-mode") == 0) {
    for (int threads = 1; threads <= 3; threads++) {
      uint64_t hostile;
      status = hash_logits(argv[2], threads, HOSTILE_MODE, &hostile, &err);
      if (status != ML_OK || hostile != hash) {
        fprintf(stderr, "%d threads, hostile mode: status %d, %016llx\n", threads, status, (unsigned long long)hostile);
        return 1;
      }
    }
  }
  return modes_changed != 0;
}
