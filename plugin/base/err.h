/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* An error with its reasons. A function that can fail returns 0 or a negative errno. If its caller may
 * have to report the reason, the function also takes a `struct pvn_err *`, which may be NULL. All texts are
 * stored inside the struct, so that to report ENOMEM needs no memory. A struct may live on the stack or in a
 * connection, and may be copied by assignment.
 *
 * The chain of reasons begins with the root cause. The function that first understands the failure calls
 * pvn_err_set(). A caller calls pvn_err_add() only if it knows something that the callee did not know. */
#ifndef PVN_BASE_ERR_H
#define PVN_BASE_ERR_H

#include <stddef.h>
#include <stdint.h>

#define PVN_ERR_REASONS    3
#define PVN_ERR_REASON_LEN 320
#define PVN_ERR_PLACE_LEN  192
#define PVN_ERR_TEXT_LEN   2432 /* holds any formatted pvn_err with its hint */

/* The side that has to act. It selects the ncclResult_t (result.h). */
enum pvn_fault {
    PVN_FAULT_UNSET = 0, /* the errno decides */
    PVN_FAULT_SYSTEM,    /* the operating system or a device refused */
    PVN_FAULT_USAGE,     /* a setting: parameters, environment, configuration */
    PVN_FAULT_ARGUMENT,  /* the caller (NCCL or a tool) passed something impossible */
    PVN_FAULT_REMOTE,    /* the peer, or the network between */
    PVN_FAULT_CUDA,      /* the CUDA driver refused */
    PVN_FAULT_INTERNAL   /* a bug of ours */
};

struct pvn_err {
    int code;                    /* negative errno; 0: no error recorded */
    enum pvn_fault fault;        /* the side that has to act */
    int hint;                    /* enum pvn_hint_id (hints.h); 0: none */
    int n;                       /* reasons in use, 0 .. PVN_ERR_REASONS */
    int dropped;                 /* reasons that were not stored because the chain was full */
    char who[PVN_ERR_PLACE_LEN]; /* peer, e.g. "node7 pid 4711 at 192.0.2.7:40123"; may be empty */
    char where[PVN_ERR_PLACE_LEN]; /* this end, e.g. "node6 eth2 192.0.2.6:40100"; may be empty */
    char reason[PVN_ERR_REASONS][PVN_ERR_REASON_LEN]; /* [0] is the root cause */
};

/* clang-format off */
#define PVN_ERR_INIT {0, PVN_FAULT_UNSET, 0, 0, 0, "", "", {"", "", ""}}
/* clang-format on */

#ifdef __GNUC__
#define PVN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PVN_PRINTF(fmt, args)
#endif

void pvn_err_clear(struct pvn_err *err);

/* Clears *err and records the root cause. `code` is a negative errno and is also the result, so that
 * `return pvn_err_set(err, -EINVAL, ...)` works. Control characters are stored as '?', because texts may come
 * from the wire. A text that is too long is cut at a "; ", else after a word, and ends with " ...". */
int pvn_err_set(struct pvn_err *err, int code, const char *fmt, ...) PVN_PRINTF(3, 4);

/* Adds a sentence of context to an error that is set, and returns its code. Returns -EIO if no error is set,
 * so that this mistake of a caller does not turn into success. If the chain is full, the sentence is counted
 * and not stored, because the reasons next to the root cause are the most useful ones. */
int pvn_err_add(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);

void pvn_err_set_fault(struct pvn_err *err, enum pvn_fault fault);
void pvn_err_set_hint(struct pvn_err *err, int hint_id);
void pvn_err_set_who(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);
void pvn_err_set_where(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);

/* Writes the error as one line: "OUTER: ... ROOT: description (errno N); local WHERE; peer WHO; likely: ...;
 * try: ...". Always NUL-terminated. Returns the length written, at most size - 1. May be called from any
 * thread. */
size_t pvn_err_format(const struct pvn_err *err, char *buf, size_t size);

/* A reason for errors of a comm that was up: "the comm had worked for 41 min (1000 messages, 5000 bytes)".
 * ns: time since the comm came up. May be called from any thread. Returns buf. */
const char *pvn_worked_text(uint64_t ns, uint64_t msgs, uint64_t bytes, char *buf, size_t size);

/* The system's description of an errno, positive or negative: "Connection reset by peer". Thread-safe. */
const char *pvn_strerror(int code, char *buf, size_t size);

/* Appends formatted text to the string in buf, which has `size` bytes, and returns the new length. Text that
 * does not fit is cut; the string stays NUL-terminated. */
size_t pvn_str_append(char *buf, size_t size, const char *fmt, ...) PVN_PRINTF(3, 4);

#endif
