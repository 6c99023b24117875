/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* An error with its reasons. A function that can fail returns 0 or a negative errno; where the
 * caller must be able to say why, it also takes a `struct pvn_err *`, which may be NULL when the
 * reason is not needed. Everything is in fixed storage inside the struct, so that reporting ENOMEM
 * needs no memory, and a struct may live on the stack, in a connection, or be copied by assignment.
 *
 * The chain reads from the root cause outwards: pvn_err_set() where the failure is first
 * understood, pvn_err_add() in its callers only where a caller knows something that the callee did
 * not. */
#ifndef PVN_BASE_ERR_H
#define PVN_BASE_ERR_H

#include <stddef.h>
#include <stdint.h>

#define PVN_ERR_REASONS    3
#define PVN_ERR_REASON_LEN 320
#define PVN_ERR_PLACE_LEN  192
#define PVN_ERR_TEXT_LEN   2432 /* holds any formatted pvn_err with its hint */

/* Who has to act. It selects the ncclResult_t (result.h). */
enum pvn_fault {
    PVN_FAULT_UNSET = 0, /* go by the errno */
    PVN_FAULT_SYSTEM,    /* the operating system or a device refused */
    PVN_FAULT_USAGE,     /* a setting: parameters, environment, configuration */
    PVN_FAULT_ARGUMENT,  /* the caller (NCCL or a tool) passed something impossible */
    PVN_FAULT_REMOTE,    /* the peer, or the network between */
    PVN_FAULT_CUDA,      /* the CUDA driver refused */
    PVN_FAULT_INTERNAL   /* a bug of ours */
};

struct pvn_err {
    int code;                    /* negative errno; 0: no error recorded */
    enum pvn_fault fault;        /* who has to act */
    int hint;                    /* enum pvn_hint_id (hints.h); 0: none */
    int n;                       /* reasons in use, 0 .. PVN_ERR_REASONS */
    int dropped;                 /* reasons that found no room */
    char who[PVN_ERR_PLACE_LEN]; /* the peer, e.g. "node7 pid 4711 at 192.0.2.7:40123"; may be empty
                                  */
    char where[PVN_ERR_PLACE_LEN]; /* our side, e.g. "node6 eth2 192.0.2.6:40100"; may be empty */
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

/* Forgets what was there and records the root cause. `code` is a negative errno. Returns `code`, so
 * that `return pvn_err_set(err, -EINVAL, ...)` works. Control characters are stored as '?': texts
 * may come from the wire. What has no room is cut at a "; ", else behind a word, and ends with " ...". */
int pvn_err_set(struct pvn_err *err, int code, const char *fmt, ...) PVN_PRINTF(3, 4);

/* Adds a sentence of context to an error that is already set and returns its code (-EIO when none
 * is set, which is a mistake of the caller that must not turn into success). When the chain is full
 * the sentence is counted, not stored: those next to the root say most. */
int pvn_err_add(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);

void pvn_err_set_fault(struct pvn_err *err, enum pvn_fault fault);
void pvn_err_set_hint(struct pvn_err *err, int hint_id);
void pvn_err_set_who(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);
void pvn_err_set_where(struct pvn_err *err, const char *fmt, ...) PVN_PRINTF(2, 3);

/* One line: "OUTER: ... ROOT: description (errno N); local WHERE, peer WHO; likely ...; try ...".
 * Always terminated; returns the length written, at most size - 1. Any thread. */
size_t pvn_err_format(const struct pvn_err *err, char *buf, size_t size);

/* How long a comm had worked when it ended, as a reason of its own: "the comm had worked for 41 min
 * (1000 messages, 5000 bytes)". ns: since it came up. Any thread. Returns buf. */
const char *pvn_worked_text(uint64_t ns, uint64_t msgs, uint64_t bytes, char *buf, size_t size);

/* The system's description of an errno of either sign, thread safe: "Connection reset by peer". */
const char *pvn_strerror(int code, char *buf, size_t size);

/* Appends formatted text to the string in buf (capacity `size`) and returns its new
 * length; text that does not fit is cut and the string stays terminated. For
 * building messages in fixed buffers. */
size_t pvn_str_append(char *buf, size_t size, const char *fmt, ...) PVN_PRINTF(3, 4);

#endif
