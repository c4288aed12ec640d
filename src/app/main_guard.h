/* SPDX-License-Identifier: BSD-3-Clause
 * Between the guard and the program behind it. */
#ifndef ML_APP_MAIN_GUARD_H
#define ML_APP_MAIN_GUARD_H

/* The program, compiled with the flags of its ISA: called only on a CPU that can run it. Returns the exit status. */
int ml_main(int argc, char **argv);

#endif
