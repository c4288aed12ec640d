/* SPDX-License-Identifier: BSD-3-Clause
 * Little-endian numbers at any address of a file. */
#ifndef ML_CORE_BYTES_H
#define ML_CORE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t read_u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline int32_t read_i32(const uint8_t *p) {
  uint32_t bits = read_u32(p);
  int32_t x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float read_f32(const uint8_t *p) {
  uint32_t bits = read_u32(p);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#endif
