# Kernels of this folder that ASM=1 takes from <kernel>.S instead of <kernel>.c.
ASM_KERNELS := add
