/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Log messages. They go to NCCL's logger once NCCL has passed it to init, before that and in tools to stderr.
 *
 * Rules: a failure is logged once, at WARN, by the function that first understands it. INFO is for set-up and
 * rare changes. Everything that happens per message is TRACE. Repeated WARN lines are folded: within
 * PVN_LOG_FOLD_NS a call site prints at most PVN_LOG_FOLD_TEXTS texts and none of them twice. The other lines
 * are counted, and one line reports their number when the time is over.
 *
 * All functions may be called from any thread. None allocates, and none waits for a lock of the plugin, so a
 * forked child cannot hang in them. */
#ifndef PVN_BASE_LOG_H
#define PVN_BASE_LOG_H

#include <stdint.h>

#include "base/err.h"

/* The values of ncclDebugLogLevel and ncclDebugLogSubSys (NCCL 2.30.7, src/include/nccl_common.h). They have
 * been part of the plugin ABI since v4 without a change. */
enum pvn_log_level {
    PVN_LOG_NONE = 0,
    PVN_LOG_VERSION = 1,
    PVN_LOG_WARN = 2,
    PVN_LOG_INFO = 3,
    PVN_LOG_ABORT = 4,
    PVN_LOG_TRACE = 5
};

#define PVN_INIT    0x1ul  /* set-up */
#define PVN_NET     0x10ul /* network: most of the plugin's messages */
#define PVN_GRAPH   0x20ul
#define PVN_ENV     0x80ul /* parameters */
#define PVN_REG     0x2000ul
#define PVN_PROFILE 0x4000ul
#define PVN_DESTROY 0x10000ul
#define PVN_ALL     (~0ul)

#define PVN_LOG_LINE 2432 /* bytes of a message; a longer one is cut */

#define PVN_LOG_FOLD_NS    UINT64_C(10000000000)
#define PVN_LOG_FOLD_TEXTS 4

/* ncclDebugLogger_t. */
typedef void (*pvn_logger_fn)(enum pvn_log_level level, unsigned long flags, const char *file,
                              int line, const char *fmt, ...);

/* Sets the logger; NULL goes back to stderr. NCCL passes the same function to every init. */
void pvn_log_set_logger(pvn_logger_fn logger);

/* Sets the level up to which messages go to stderr while there is no logger. The default follows NCCL_DEBUG and
 * NCCL_DEBUG_SUBSYS as in NCCL: without NCCL_DEBUG nothing is printed. So a tool that shows its warnings sets a
 * level. */
void pvn_log_set_level(enum pvn_log_level level);

/* 1 if a message of this level may be printed, for callers whose messages are expensive to prepare. NCCL's logger
 * gets all WARN and INFO messages and filters them itself. */
int pvn_log_enabled(enum pvn_log_level level);

/* Prints the "N more" lines whose time is over, or all of them if `all` is set. finalize calls this. */
void pvn_log_flush(int all);

void pvn_log_write(enum pvn_log_level level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...) PVN_PRINTF(5, 6);

#define pvn_warn(...)        pvn_log_write(PVN_LOG_WARN, PVN_ALL, __FILE__, __LINE__, __VA_ARGS__)
#define pvn_info(flags, ...) pvn_log_write(PVN_LOG_INFO, (flags), __FILE__, __LINE__, __VA_ARGS__)
#define pvn_trace(flags, ...)                                                                      \
    (__builtin_expect(pvn_log_trace_on, 0)                                                         \
         ? pvn_log_write(PVN_LOG_TRACE, (flags), __FILE__, __LINE__, __VA_ARGS__)                  \
         : (void)0)

/* Logs an error at WARN: what happened, why, at which ends, and the hint. The hint gets a line of its own if both
 * together are longer than PVN_LOG_NCCL_LINE, because NCCL cuts a line at 1024 bytes, including NCCL's prefix. */
#define PVN_LOG_NCCL_LINE 880
#define pvn_warn_err(err) pvn_log_write_err((err), __FILE__, __LINE__)
void pvn_log_write_err(const struct pvn_err *err, const char *file, int line);

/* Set by pvn_log_set_logger and pvn_log_set_level; read only by pvn_trace(). */
extern int pvn_log_trace_on;

/* For tests. pvn_log_set_capture sends every message that is not folded to `fn` only (TRACE still needs its level);
 * NULL ends this. pvn_log_set_clock replaces the clock of folding; NULL restores it. Both also reset the state of
 * folding. */
typedef void (*pvn_log_capture_fn)(void *arg, enum pvn_log_level level, unsigned long flags,
                                   const char *file, int line, const char *text);
void pvn_log_set_capture(pvn_log_capture_fn fn, void *arg);
void pvn_log_set_clock(uint64_t (*now)(void));

#endif
