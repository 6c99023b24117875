/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Messages, through NCCL's logger once NCCL has handed it over, to stderr before that and in tools.
 *
 * Rules: a failure is printed once, at WARN, where it is first understood; INFO is for set-up and
 * for what changes rarely; whatever happens per message is TRACE. A WARN line that repeats is
 * folded: within PVN_LOG_FOLD_NS a call site prints PVN_LOG_FOLD_TEXTS different texts and none
 * twice, the rest is counted and reported by one line when the time is over.
 *
 * All functions may be called by any thread. None allocates, none blocks on a lock of ours, so a
 * forked child cannot hang in one. */
#ifndef PVN_BASE_LOG_H
#define PVN_BASE_LOG_H

#include <stdint.h>

#include "base/err.h"

/* ncclDebugLogLevel and ncclDebugLogSubSys (NCCL 2.30.7, src/include/nccl_common.h): part of the
 * plugin ABI since v4; the values have not changed. */
enum pvn_log_level {
    PVN_LOG_NONE = 0,
    PVN_LOG_VERSION = 1,
    PVN_LOG_WARN = 2,
    PVN_LOG_INFO = 3,
    PVN_LOG_ABORT = 4,
    PVN_LOG_TRACE = 5
};

#define PVN_INIT    0x1ul  /* set-up */
#define PVN_NET     0x10ul /* the network, the usual one */
#define PVN_GRAPH   0x20ul
#define PVN_ENV     0x80ul /* parameters */
#define PVN_REG     0x2000ul
#define PVN_PROFILE 0x4000ul
#define PVN_DESTROY 0x10000ul
#define PVN_ALL     (~0ul)

#define PVN_LOG_LINE 2432 /* longest message; what is longer is cut */

#define PVN_LOG_FOLD_NS    UINT64_C(10000000000)
#define PVN_LOG_FOLD_TEXTS 4

/* ncclDebugLogger_t. */
typedef void (*pvn_logger_fn)(enum pvn_log_level level, unsigned long flags, const char *file,
                              int line, const char *fmt, ...);

/* NULL goes back to stderr. NCCL calls a plugin's init with the same function every time. */
void pvn_log_set_logger(pvn_logger_fn logger);

/* The level up to which messages go to stderr while there is no logger. The default follows NCCL_DEBUG and
 * NCCL_DEBUG_SUBSYS (as NCCL does: nothing when unset); a tool whose warnings are to be seen sets a
 * level. */
void pvn_log_set_level(enum pvn_log_level level);

/* 1 if a message of this level would be printed, for callers that prepare it at some cost.
 * With NCCL's logger in place WARN and INFO are always passed on: NCCL filters them. */
int pvn_log_enabled(enum pvn_log_level level);

/* Prints the "N more" lines whose time is over, or all of them when `all`; finalize calls it. */
void pvn_log_flush(int all);

void pvn_log_write(enum pvn_log_level level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...) PVN_PRINTF(5, 6);

#define pvn_warn(...)        pvn_log_write(PVN_LOG_WARN, PVN_ALL, __FILE__, __LINE__, __VA_ARGS__)
#define pvn_info(flags, ...) pvn_log_write(PVN_LOG_INFO, (flags), __FILE__, __LINE__, __VA_ARGS__)
#define pvn_trace(flags, ...)                                                                      \
    (__builtin_expect(pvn_log_trace_on, 0)                                                         \
         ? pvn_log_write(PVN_LOG_TRACE, (flags), __FILE__, __LINE__, __VA_ARGS__)                  \
         : (void)0)

/* An error as a WARN line: what, why, where, whom, hint. The hint gets a line of its own where both
 * would be longer than PVN_LOG_NCCL_LINE, since NCCL cuts a line at 1024 bytes with its own prefix
 * in it. */
#define PVN_LOG_NCCL_LINE 880
#define pvn_warn_err(err) pvn_log_write_err((err), __FILE__, __LINE__)
void pvn_log_write_err(const struct pvn_err *err, const char *file, int line);

/* Set by pvn_log_set_logger and pvn_log_set_level; read only by pvn_trace(). */
extern int pvn_log_trace_on;

/* For tests: every message that passes folding goes to `fn` and nowhere else (TRACE still needs its
 * level); NULL ends it. `now` replaces the clock of folding, NULL restores it. Both also forget
 * what was folded. */
typedef void (*pvn_log_capture_fn)(void *arg, enum pvn_log_level level, unsigned long flags,
                                   const char *file, int line, const char *text);
void pvn_log_set_capture(pvn_log_capture_fn fn, void *arg);
void pvn_log_set_clock(uint64_t (*now)(void));

#endif
