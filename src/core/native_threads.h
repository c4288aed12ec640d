/* SPDX-License-Identifier: BSD-3-Clause
 * Threads, mutexes and condition variables of the system, as far as the pool needs them: POSIX threads, or Windows' own. */
#ifndef ML_CORE_NATIVE_THREADS_H
#define ML_CORE_NATIVE_THREADS_H

#include <stddef.h>

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <process.h>

typedef HANDLE native_thread;
typedef SRWLOCK native_mutex;
typedef CONDITION_VARIABLE native_cond;

/* The result of a thread's function and how it is called; return 0. */
typedef unsigned native_result;
#define NATIVE_CALL __stdcall

static inline int native_thread_start(native_thread *thread, size_t stack_bytes, native_result(NATIVE_CALL *run)(void *), void *arg) {
  *thread = (HANDLE)_beginthreadex(NULL, (unsigned)stack_bytes, run, arg, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
  return *thread != NULL;
}

static inline void native_thread_join(native_thread thread) {
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
}

static inline void native_mutex_init(native_mutex *mutex) {
  InitializeSRWLock(mutex);
}

static inline void native_mutex_destroy(native_mutex *mutex) {
  (void)mutex; /* owns nothing */
}

static inline void native_mutex_lock(native_mutex *mutex) {
  AcquireSRWLockExclusive(mutex);
}

static inline void native_mutex_unlock(native_mutex *mutex) {
  ReleaseSRWLockExclusive(mutex);
}

static inline void native_cond_init(native_cond *cond) {
  InitializeConditionVariable(cond);
}

static inline void native_cond_destroy(native_cond *cond) {
  (void)cond; /* owns nothing */
}

static inline void native_cond_wait(native_cond *cond, native_mutex *mutex) {
  SleepConditionVariableSRW(cond, mutex, INFINITE, 0);
}

static inline void native_cond_signal(native_cond *cond) {
  WakeConditionVariable(cond);
}

/* Tells the CPU that this thread waits in a loop. */
static inline void native_pause(void) {
  YieldProcessor();
}

#else

#include <pthread.h>

typedef pthread_t native_thread;
typedef pthread_mutex_t native_mutex;
typedef pthread_cond_t native_cond;

/* The result of a thread's function and how it is called; return 0. */
typedef void *native_result;
#define NATIVE_CALL

/* 1, or 0 if the system has no more threads. */
static inline int native_thread_start(native_thread *thread, size_t stack_bytes, native_result (*run)(void *), void *arg) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, stack_bytes);
  int error = pthread_create(thread, &attr, run, arg);
  pthread_attr_destroy(&attr);
  return error == 0;
}

static inline void native_thread_join(native_thread thread) {
  pthread_join(thread, NULL);
}

static inline void native_mutex_init(native_mutex *mutex) {
  pthread_mutex_init(mutex, NULL);
}

static inline void native_mutex_destroy(native_mutex *mutex) {
  pthread_mutex_destroy(mutex);
}

static inline void native_mutex_lock(native_mutex *mutex) {
  pthread_mutex_lock(mutex);
}

static inline void native_mutex_unlock(native_mutex *mutex) {
  pthread_mutex_unlock(mutex);
}

static inline void native_cond_init(native_cond *cond) {
  pthread_cond_init(cond, NULL);
}

static inline void native_cond_destroy(native_cond *cond) {
  pthread_cond_destroy(cond);
}

static inline void native_cond_wait(native_cond *cond, native_mutex *mutex) {
  pthread_cond_wait(cond, mutex);
}

static inline void native_cond_signal(native_cond *cond) {
  pthread_cond_signal(cond);
}

/* Tells the CPU that this thread waits in a loop. */
static inline void native_pause(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

#endif

#endif
