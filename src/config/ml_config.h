/* SPDX-License-Identifier: BSD-3-Clause
 * Binds every kernel name to one implementation, at compile time: the nearest in the ISA's chain that has it.
 *
 * Each ISA's header defines ML_HAS_<KERNEL>_<ISA> for what the ISA implements. A kernel may only be taken from an ISA whose features are a
 * subset of the selected one's: the chain is `parent` in isa.toml, so avx512vnni goes on to avx2 (not every CPU with the one
 * has AVX-VNNI) and sve to neon (A64FX has no dot product). */
#ifndef ML_CONFIG_H
#define ML_CONFIG_H

#include "../kernels/kernels.h"
#include "../kernels/scalar/scalar.h"

#if defined(ML_ISA_SCALAR)
#define ML_ISA scalar
#elif defined(ML_ISA_SSE2)
#define ML_ISA sse2
#define ML_CHAIN_SSE2
#elif defined(ML_ISA_AVX2)
#define ML_ISA avx2
#define ML_CHAIN_SSE2
#define ML_CHAIN_AVX2
#else
#error "no ISA selected: build with make ISA=<isa>"
#endif

#ifdef ML_CHAIN_SSE2
#include "../kernels/sse2/sse2.h"
#endif
#ifdef ML_CHAIN_AVX2
#include "../kernels/avx2/avx2.h"
#endif

#if defined(ML_HAS_MATVEC_Q8_AVX2)
#define ml_k_matvec_q8 ml_k_matvec_q8_avx2
#elif defined(ML_HAS_MATVEC_Q8_SSE2)
#define ml_k_matvec_q8 ml_k_matvec_q8_sse2
#else
#define ml_k_matvec_q8 ml_k_matvec_q8_scalar
#endif

#if defined(ML_HAS_MATVEC_Q4_AVX2)
#define ml_k_matvec_q4 ml_k_matvec_q4_avx2
#elif defined(ML_HAS_MATVEC_Q4_SSE2)
#define ml_k_matvec_q4 ml_k_matvec_q4_sse2
#else
#define ml_k_matvec_q4 ml_k_matvec_q4_scalar
#endif

#if defined(ML_HAS_QUANTIZE_Q8_AVX2)
#define ml_k_quantize_q8 ml_k_quantize_q8_avx2
#elif defined(ML_HAS_QUANTIZE_Q8_SSE2)
#define ml_k_quantize_q8 ml_k_quantize_q8_sse2
#else
#define ml_k_quantize_q8 ml_k_quantize_q8_scalar
#endif

#if defined(ML_HAS_RMSNORM_AVX2)
#define ml_k_rmsnorm ml_k_rmsnorm_avx2
#elif defined(ML_HAS_RMSNORM_SSE2)
#define ml_k_rmsnorm ml_k_rmsnorm_sse2
#else
#define ml_k_rmsnorm ml_k_rmsnorm_scalar
#endif

#if defined(ML_HAS_SOFTMAX_AVX2)
#define ml_k_softmax ml_k_softmax_avx2
#elif defined(ML_HAS_SOFTMAX_SSE2)
#define ml_k_softmax ml_k_softmax_sse2
#else
#define ml_k_softmax ml_k_softmax_scalar
#endif

#if defined(ML_HAS_ROPE_AVX2)
#define ml_k_rope ml_k_rope_avx2
#elif defined(ML_HAS_ROPE_SSE2)
#define ml_k_rope ml_k_rope_sse2
#else
#define ml_k_rope ml_k_rope_scalar
#endif

#if defined(ML_HAS_SILU_MUL_AVX2)
#define ml_k_silu_mul ml_k_silu_mul_avx2
#elif defined(ML_HAS_SILU_MUL_SSE2)
#define ml_k_silu_mul ml_k_silu_mul_sse2
#else
#define ml_k_silu_mul ml_k_silu_mul_scalar
#endif

#if defined(ML_HAS_ADD_AVX2)
#define ml_k_add ml_k_add_avx2
#elif defined(ML_HAS_ADD_SSE2)
#define ml_k_add ml_k_add_sse2
#else
#define ml_k_add ml_k_add_scalar
#endif

#if defined(ML_HAS_DOT_F32_AVX2)
#define ml_k_dot_f32 ml_k_dot_f32_avx2
#elif defined(ML_HAS_DOT_F32_SSE2)
#define ml_k_dot_f32 ml_k_dot_f32_sse2
#else
#define ml_k_dot_f32 ml_k_dot_f32_scalar
#endif

#if defined(ML_HAS_AXPY_F32_AVX2)
#define ml_k_axpy_f32 ml_k_axpy_f32_avx2
#elif defined(ML_HAS_AXPY_F32_SSE2)
#define ml_k_axpy_f32 ml_k_axpy_f32_sse2
#else
#define ml_k_axpy_f32 ml_k_axpy_f32_scalar
#endif

#endif
