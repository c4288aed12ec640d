/* SPDX-License-Identifier: BSD-3-Clause
 * The guard's decision on CPUs that are made up from public facts: CPUID words and AT_HWCAP of real families, and systems that hide or do not enable what
 * the CPU has. */
#include <string.h>

#include "../src/config/isa_table.h"
#include "../src/core/isa_check.h"
#include "harness.h"

static void check_best(const char *name, ml_cpu_facts facts, const char *expected) {
  const char *best = ml_isa_best(&facts);
  if (expected == NULL) {
    CHECK(best == NULL, "%s: best build is %s, expected none", name, best);
    return;
  }
  CHECK(best != NULL && strcmp(best, expected) == 0, "%s: best build is %s, expected %s", name, best != NULL ? best : "none", expected);
}

static void check_sentence(const char *name, ml_cpu_facts facts, const char *isa, uint32_t required, const char *expected) {
  ml_error err;
  ml_status status = ml_isa_decide(&facts, isa, required, &err);
  if (expected == NULL) {
    CHECK(status == ML_OK && err.text[0] == '\0', "%s: %d \"%s\"", name, status, err.text);
    return;
  }
  CHECK(status == ML_E_ISA && err.status == ML_E_ISA, "%s: status %d", name, status);
  CHECK(strcmp(err.text, expected) == 0, "%s:\n  found    \"%s\"\n  expected \"%s\"", name, err.text, expected);
  CHECK(ml_isa_decide(&facts, isa, required, NULL) == ML_E_ISA, "%s: without a place for the text", name);
}

#if defined(__x86_64__)

/* CPUID.1:ECX */
#define SSE3 (1u << 0)
#define SSSE3 (1u << 9)
#define FMA (1u << 12)
#define SSE41 (1u << 19)
#define SSE42 (1u << 20)
#define MOVBE (1u << 22)
#define POPCNT (1u << 23)
#define OSXSAVE (1u << 27)
#define AVX (1u << 28)
#define F16C (1u << 29)
/* CPUID.7.0:EBX, ECX; CPUID.7.1:EAX */
#define AVX2 (1u << 5)
#define BMI (1u << 3 | 1u << 8)
#define AVX512_F_BW_DQ_VL_CD (1u << 16 | 1u << 30 | 1u << 17 | 1u << 31 | 1u << 28)
#define AVX512_VNNI (1u << 11)
#define AVX_VNNI (1u << 4)

#define NEHALEM (SSE3 | SSSE3 | SSE41 | SSE42 | POPCNT)
#define SANDY (NEHALEM | OSXSAVE | AVX)
#define HASWELL (SANDY | FMA | F16C | MOVBE)
#define ALL_STATE 0xe7u

static ml_cpu_facts cpu(uint32_t ecx1, uint32_t ebx7, uint32_t ecx7, uint32_t eax71, uint64_t xcr0) {
  ml_cpu_facts f = {.max_leaf = 0x16, .max_subleaf_of_7 = 1, .max_extended = 0x80000008u, .xcr0 = xcr0};
  f.word[ML_WORD_1_ECX] = ecx1;
  f.word[ML_WORD_7_EBX] = ebx7;
  f.word[ML_WORD_7_ECX] = ecx7;
  f.word[ML_WORD_7_1_EAX] = eax71;
  return f;
}

static void test_families(void) {
  ml_cpu_facts old = cpu(SSE3, 0, 0, 0, 0);
  old.max_leaf = 1;
  old.max_subleaf_of_7 = 0;
  check_best("qemu64, Athlon 64", old, "sse2");
  check_best("Bonnell, Core 2 Conroe", cpu(SSE3 | SSSE3 | MOVBE, 0, 0, 0, 0), "sse2");
  check_best("Penryn", cpu(SSE3 | SSSE3 | SSE41, 0, 0, 0, 0), "sse41");
  check_best("Nehalem", cpu(NEHALEM, 0, 0, 0, 0), "sse41");
  check_best("Sandy Bridge", cpu(SANDY, 0, 0, 0, 7), "sse41");
  check_best("Haswell", cpu(HASWELL, AVX2 | BMI, 0, 0, 7), "avx2");
  check_best("Haswell whose hypervisor hides FMA", cpu(HASWELL & ~FMA, AVX2 | BMI, 0, 0, 7), "sse41");
  check_best("Alder Lake", cpu(HASWELL, AVX2 | BMI, 0, AVX_VNNI, 7), "avxvnni");
  check_best("Skylake-X", cpu(HASWELL, AVX2 | BMI | AVX512_F_BW_DQ_VL_CD, 0, 0, ALL_STATE), "avx2");
  check_best("Ice Lake, Zen 4", cpu(HASWELL, AVX2 | BMI | AVX512_F_BW_DQ_VL_CD, AVX512_VNNI, 0, ALL_STATE), "avx512vnni");
  check_best("Sapphire Rapids, Zen 5", cpu(HASWELL, AVX2 | BMI | AVX512_F_BW_DQ_VL_CD, AVX512_VNNI, AVX_VNNI, ALL_STATE), "avx512vnni");
}

/* The CPU says yes; the system decides. */
static void test_state(void) {
  const uint32_t ebx7 = AVX2 | BMI | AVX512_F_BW_DQ_VL_CD;
  check_best("XCR0 0", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 0), "sse41");
  check_best("XCR0 3: SSE only", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 3), "sse41");
  check_best("XCR0 7: no AVX-512 state", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 7), "avx2");
  check_best("XCR0 7 with AVX-VNNI", cpu(HASWELL, ebx7, AVX512_VNNI, AVX_VNNI, 7), "avxvnni");
  check_best("XCR0 a7: one part of AVX-512 state is missing", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 0xa7), "avx2");
  check_best("XCR0 87: two are missing", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 0x87), "avx2");
  check_best("XCR0 c7", cpu(HASWELL, ebx7, AVX512_VNNI, AVX_VNNI, 0xc7), "avxvnni");
  check_best("XCR0 e3: AVX-512 without AVX state", cpu(HASWELL, ebx7, AVX512_VNNI, 0, 0xe3), "sse41");
  check_best("XCR0 e7", cpu(HASWELL, ebx7, AVX512_VNNI, 0, ALL_STATE), "avx512vnni");
  check_best("no OSXSAVE, junk in XCR0", cpu(HASWELL & ~OSXSAVE, ebx7, AVX512_VNNI, AVX_VNNI, ~(uint64_t)0), "sse41");
}

/* Words of leaves that the CPU does not have are junk and mean nothing. */
static void test_leaf_bounds(void) {
  ml_cpu_facts f = cpu(HASWELL, AVX2 | BMI, 0, ~0u, 7);
  f.max_subleaf_of_7 = 0;
  check_best("leaf 7 without subleaf 1", f, "avx2");
  f = cpu(HASWELL, ~0u, ~0u, ~0u, ALL_STATE);
  f.max_leaf = 6;
  check_best("no leaf 7", f, "sse41");
  f = cpu(~0u, ~0u, ~0u, ~0u, ~(uint64_t)0);
  f.max_leaf = 0;
  check_best("no leaf 1", f, "sse2");
}

static void test_sentences(void) {
  const uint32_t avx2 = ML_CPU_SSE3 | ML_CPU_SSSE3 | ML_CPU_SSE4_1 | ML_CPU_SSE4_2 | ML_CPU_POPCNT | ML_CPU_AVX | ML_CPU_AVX2 | ML_CPU_FMA;
  check_sentence("Penryn", cpu(SSE3 | SSSE3 | SSE41, 0, 0, 0, 0), "avx2", avx2,
                 "this is the avx2 build of legacyml, and this CPU lacks SSE4.2, POPCNT, AVX, FMA, AVX2; install legacyml-sse41 instead "
                 "(conda install legacyml-sse41)");
  check_sentence("Sandy Bridge without state", cpu(SANDY & ~OSXSAVE, 0, 0, 0, 0), "avx2", avx2,
                 "this is the avx2 build of legacyml, and this CPU lacks FMA, AVX2; install legacyml-sse41 instead (conda install "
                 "legacyml-sse41)");
  check_sentence("Haswell,-xsave", cpu(HASWELL & ~OSXSAVE, AVX2 | BMI, 0, 0, 0), "avx2", avx2,
                 "this is the avx2 build of legacyml; this CPU has AVX, FMA, AVX2, but the operating system or hypervisor has not enabled "
                 "the registers for it (XSAVE); install legacyml-sse41 instead (conda install legacyml-sse41)");
  check_sentence("Haswell", cpu(HASWELL, AVX2 | BMI, 0, 0, 7), "avx2", avx2, NULL);
  check_sentence("anything", cpu(0, 0, 0, 0, 0), "sse2", 0, NULL);
}

#else

static ml_cpu_facts cpu(uint32_t hwcap) {
  ml_cpu_facts f = {0};
  f.word[ML_WORD_HWCAP] = hwcap;
  return f;
}

#if defined(__aarch64__)

/* AT_HWCAP: fp, asimd, aes, pmull, sha1, sha2, crc32, cpuid; and what Armv8.2 adds: atomics, fphp, asimdhp, asimdrdm. */
#define ARMV8 0x8fbu
#define ARMV8_2 (ARMV8 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 12)
#define DOTPROD (1u << 20)
#define SVE (1u << 22)

static void test_families(void) {
  check_best("Cortex-A53, A72", cpu(ARMV8), "neon");
  check_best("Cortex-A76, Neoverse N1, Apple M1", cpu(ARMV8_2 | DOTPROD), "neon_dotprod");
  check_best("A64FX: SVE without dot product", cpu(ARMV8_2 | SVE), "sve");
  check_best("Neoverse V1", cpu(ARMV8_2 | DOTPROD | SVE), "sve");
  check_best("SVE whose half-precision arithmetic is hidden", cpu((ARMV8_2 & ~(1u << 9)) | DOTPROD | SVE), "neon_dotprod");
  check_best("dot product without atomics", cpu(ARMV8 | DOTPROD), "neon");
  check_best("no Advanced SIMD", cpu(1), NULL);
}

static void test_sentences(void) {
  const uint32_t dotprod = ML_CPU_ASIMD | ML_CPU_LSE | ML_CPU_CRC32 | ML_CPU_RDM | ML_CPU_DOTPROD;
  check_sentence(
      "Cortex-A72", cpu(ARMV8), "neon_dotprod", dotprod,
      "this is the neon_dotprod build of legacyml, and this CPU lacks LSE atomics, rounding multiply-accumulate (RDM), dot product "
      "(SDOT); install legacyml-neon instead (conda install legacyml-neon)");
  check_sentence("A64FX", cpu(ARMV8_2 | SVE), "neon_dotprod", dotprod,
                 "this is the neon_dotprod build of legacyml, and this CPU lacks dot product (SDOT); install legacyml-sve instead (conda "
                 "install legacyml-sve)");
  check_sentence("Cortex-A76", cpu(ARMV8_2 | DOTPROD), "neon_dotprod", dotprod, NULL);
}

#else

/* AT_HWCAP: half, thumb, fastmult, vfp, edsp, tls; vfpv3 */
#define ARMV7 0x80d6u
#define VFPV3 (1u << 13)
#define NEON (1u << 12)

static void test_families(void) {
  check_best("Cortex-A8, A9", cpu(ARMV7 | VFPV3 | NEON), "neon");
  check_best("Tegra 2", cpu(ARMV7 | VFPV3 | 1u << 14), "scalar");
  check_best("ARM1176: VFPv2", cpu(ARMV7), NULL);
}

static void test_sentences(void) {
  const uint32_t neon = ML_CPU_VFPV3 | ML_CPU_NEON;
  check_sentence(
      "Tegra 2", cpu(ARMV7 | VFPV3 | 1u << 14), "neon", neon,
      "this is the neon build of legacyml, and this CPU lacks NEON; install legacyml-scalar instead (conda install legacyml-scalar)");
  check_sentence("ARM1176", cpu(ARMV7), "neon", neon,
                 "this is the neon build of legacyml, and this CPU lacks VFPv3, NEON; no build of legacyml runs on it");
  check_sentence("Cortex-A9", cpu(ARMV7 | VFPV3 | NEON), "neon", neon, NULL);
}

#endif
#endif

/* One bit of the CPU's words is one feature: the bits once more, from the manuals of Intel, AMD and the Linux kernel. */
static void test_bits(void) {
  static const struct {
    uint32_t feature;
    int word, bit;
  } bits[] = {
#if defined(__x86_64__)
    {ML_CPU_SSE3, ML_WORD_1_ECX, 0},
    {ML_CPU_SSSE3, ML_WORD_1_ECX, 9},
    {ML_CPU_FMA, ML_WORD_1_ECX, 12},
    {ML_CPU_SSE4_1, ML_WORD_1_ECX, 19},
    {ML_CPU_SSE4_2, ML_WORD_1_ECX, 20},
    {ML_CPU_MOVBE, ML_WORD_1_ECX, 22},
    {ML_CPU_POPCNT, ML_WORD_1_ECX, 23},
    {ML_CPU_AVX, ML_WORD_1_ECX, 28},
    {ML_CPU_F16C, ML_WORD_1_ECX, 29},
    {ML_CPU_BMI1, ML_WORD_7_EBX, 3},
    {ML_CPU_AVX2, ML_WORD_7_EBX, 5},
    {ML_CPU_BMI2, ML_WORD_7_EBX, 8},
    {ML_CPU_AVX512F, ML_WORD_7_EBX, 16},
    {ML_CPU_AVX512DQ, ML_WORD_7_EBX, 17},
    {ML_CPU_AVX512CD, ML_WORD_7_EBX, 28},
    {ML_CPU_AVX512BW, ML_WORD_7_EBX, 30},
    {ML_CPU_AVX512VL, ML_WORD_7_EBX, 31},
    {ML_CPU_AVX512VBMI, ML_WORD_7_ECX, 1},
    {ML_CPU_AVX512VNNI, ML_WORD_7_ECX, 11},
    {ML_CPU_AVXVNNI, ML_WORD_7_1_EAX, 4},
    {ML_CPU_AVX512BF16, ML_WORD_7_1_EAX, 5},
    {ML_CPU_LZCNT, ML_WORD_EXT1_ECX, 5},
#elif defined(__aarch64__)
    {ML_CPU_ASIMD, ML_WORD_HWCAP, 1},
    {ML_CPU_CRC32, ML_WORD_HWCAP, 7},
    {ML_CPU_LSE, ML_WORD_HWCAP, 8},
    {ML_CPU_FPHP, ML_WORD_HWCAP, 9},
    {ML_CPU_ASIMDHP, ML_WORD_HWCAP, 10},
    {ML_CPU_RDM, ML_WORD_HWCAP, 12},
    {ML_CPU_DOTPROD, ML_WORD_HWCAP, 20},
    {ML_CPU_SVE, ML_WORD_HWCAP, 22},
#else
    {ML_CPU_NEON, ML_WORD_HWCAP, 12},
    {ML_CPU_VFPV3, ML_WORD_HWCAP, 13},
#endif
  };
  uint32_t all = 0;
  for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
    ml_cpu_facts f = {.max_leaf = 7, .max_subleaf_of_7 = 1, .max_extended = 0x80000001u};
    f.word[bits[i].word] = 1u << bits[i].bit;
    CHECK(ml_cpu_present(&f) == bits[i].feature, "bit %d of word %d is features %#x, not %#x", bits[i].bit, bits[i].word,
          ml_cpu_present(&f), bits[i].feature);
    all |= bits[i].feature;
  }
  ml_cpu_facts f = {.max_leaf = 7, .max_subleaf_of_7 = 1, .max_extended = 0x80000001u};
  memset(f.word, 0xff, sizeof f.word);
  CHECK(ml_cpu_present(&f) == all, "there are features %#x, and bits of %#x", ml_cpu_present(&f), all);
#if defined(__x86_64__)
  /* XCR0: SSE 1, AVX 2, opmask 5, upper halves of ZMM 6, ZMM 16 to 31 7. Without one of them AVX or AVX-512 cannot be used. */
  const uint32_t avx512 = ML_CPU_AVX512F | ML_CPU_AVX512CD | ML_CPU_AVX512BW | ML_CPU_AVX512DQ | ML_CPU_AVX512VL | ML_CPU_AVX512VNNI |
                          ML_CPU_AVX512VBMI | ML_CPU_AVX512BF16;
  const uint32_t avx = avx512 | ML_CPU_AVX | ML_CPU_AVX2 | ML_CPU_FMA | ML_CPU_F16C | ML_CPU_AVXVNNI;
  for (int bit = 0; bit < 8; bit++) {
    f.xcr0 = 0xe7u & ~(1u << bit);
    uint32_t lost = all & ~ml_cpu_usable(&f), needed = bit == 1 || bit == 2 ? avx : bit >= 5 ? avx512 : 0;
    CHECK((lost & needed) == needed, "without bit %d of XCR0: %#x stays usable", bit, needed & ~lost);
    CHECK((lost & ~avx) == 0 || bit == 1 || bit == 2, "without bit %d of XCR0: %#x is lost", bit, lost);
    CHECK(bit >= 5 || bit == 1 || bit == 2 || lost == 0, "bit %d of XCR0 is not needed, and %#x is lost", bit, lost);
  }
#endif
}

/* What the compiler was allowed to use is what the registry says this build needs: no more, or the guard would let a CPU in that lacks it;
 * no less, or the build is slower than its name. */
static void test_registry(void) {
  static const struct {
    const char *name;
    uint32_t features;
  } rows[] = {ML_ISA_BUILDS};
  int found = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, ml_build_isa) == 0) {
      found = 1;
      CHECK(rows[i].features == ml_build_required, "%s requires %#x, the registry says %#x", ml_build_isa, ml_build_required,
            rows[i].features);
    }
  }
  CHECK(found, "%s is not in the registry", ml_build_isa);
}

int test_main(int argc, char **argv) {
  harness_start(argc, argv);
  test_families();
#if defined(__x86_64__)
  test_state();
  test_leaf_bounds();
#endif
  test_sentences();
  test_bits();
  test_registry();
  return harness_finish();
}
