/* SPDX-License-Identifier: BSD-3-Clause
 * The floats of matmul_panels.h in registers of four lanes (v16_of_4.h). */
#ifndef ML_KERNELS_VECTOR_VF_OF_4_H
#define ML_KERNELS_VECTOR_VF_OF_4_H

typedef v4 vf;

#define VF_LANES 4
#define vf_load v4_load
#define vf_store v4_store
#define vf_add v4_add

#endif
