/* SPDX-License-Identifier: BSD-3-Clause
 * The reference: every kernel in plain C, in every build. */
#ifndef ML_KERNELS_SCALAR_H
#define ML_KERNELS_SCALAR_H

#include "../kernels.h"

ML_DECLARE_KERNELS(scalar)

#endif
