/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Hints: the probable meaning of an error and the remedy, as data: one row per known situation, each
 * with a test. A row is found either by what happened (pvn_hint_find) or by its id. */
#ifndef PVN_BASE_HINTS_H
#define PVN_BASE_HINTS_H

#include <stddef.h>

enum pvn_hint_space {
    PVN_HINT_ERRNO = 1, /* code is a positive errno */
    PVN_HINT_WC         /* code is an ibv_wc_status (rdma-core, libibverbs/verbs.h) */
};

/* The phase in which the error occurred. Steps of connecting carry the names of the handshake's states. */
enum pvn_phase {
    PVN_PHASE_ANY = 0,
    PVN_PHASE_LOAD, /* finding libraries, reading parameters */
    PVN_PHASE_SCAN, /* finding devices and interfaces */
    PVN_PHASE_LISTEN,
    PVN_PHASE_ACCEPT,
    PVN_PHASE_DIAL,
    PVN_PHASE_HELLO,
    PVN_PHASE_OFFER,
    PVN_PHASE_BIND,
    PVN_PHASE_VERIFY,
    PVN_PHASE_READY,
    PVN_PHASE_TRANSFER,
    PVN_PHASE_REG, /* registering memory */
    PVN_PHASE_CLOSE,
    PVN_PHASE_COUNT
};

/* The history of the path: an error means one thing where data have passed and another one where they never
 * have. */
enum pvn_past {
    PVN_PAST_ANY = 0,
    PVN_PAST_NEVER_WORKED,
    PVN_PAST_WORKED,  /* rows of this one are those of PVN_PAST_IDLE, too */
    PVN_PAST_IDLE,    /* it has worked and then carried nothing for PVN_PAST_IDLE_S or longer */
    PVN_PAST_ANSWERS, /* it has worked, and the peer's machine still answers on another connection */
    PVN_PAST_STALLED,   /* it works, and nothing has moved for as long as the user allows */
    PVN_PAST_ELSEWHERE, /* it never worked: the peer's address is loopback's, and this end's is not */
    PVN_PAST_COUNT
};

/* The shortest idle limits of stateful firewalls in use are a few minutes. */
enum { PVN_PAST_IDLE_S = 60 };

/* Stable names of rows; the table is in hints.c. */
enum pvn_hint_id {
    PVN_HINT_NONE = 0,
    PVN_HINT_REFUSED_LOOPBACK,
    PVN_HINT_REFUSED,
    PVN_HINT_DIAL_TIMEOUT,
    PVN_HINT_NO_PEER,
    PVN_HINT_SILENT_HANDSHAKE,
    PVN_HINT_VERIFY_TIMEOUT,
    PVN_HINT_LOST_AFTER_WORKING,
    PVN_HINT_LARGE_PACKETS_LOST,
    PVN_HINT_PEER_IS_LATE,
    PVN_HINT_NO_ROUTE,
    PVN_HINT_NO_NETWORK,
    PVN_HINT_WRONG_SOURCE,
    PVN_HINT_RESET_HANDSHAKE,
    PVN_HINT_RESET_IDLE,
    PVN_HINT_RESET_WORKING,
    PVN_HINT_CLOSED_WORKING,
    PVN_HINT_ADDR_IN_USE,
    PVN_HINT_ADDR_GONE,
    PVN_HINT_NO_FILES,
    PVN_HINT_NO_FILES_SYSTEM,
    PVN_HINT_REG_MEMLOCK,
    PVN_HINT_NO_MEMORY,
    PVN_HINT_NO_BUFFERS,
    PVN_HINT_FORBIDDEN,
    PVN_HINT_FORBIDDEN_REG,
    PVN_HINT_FIREWALL,
    PVN_HINT_PROTO_MISMATCH,
    PVN_HINT_OTHER_KEY,
    PVN_HINT_REPLACED_KEY,
    PVN_HINT_FORGED,
    PVN_HINT_LIB_MISSING,
    PVN_HINT_NO_DEVICE,
    PVN_HINT_WC_RETRY_NEVER,
    PVN_HINT_WC_RETRY_WORKED,
    PVN_HINT_WC_RNR,
    PVN_HINT_WC_LOC_PROT,
    PVN_HINT_WC_LOC_LEN,
    PVN_HINT_WC_REM_ACCESS,
    PVN_HINT_WC_REM_INV_REQ,
    PVN_HINT_WC_REM_OP,
    PVN_HINT_WC_FLUSH,
    PVN_HINT_WC_FATAL,
    PVN_HINT_COUNT
};

struct pvn_hint {
    enum pvn_hint_id id;
    enum pvn_hint_space space;
    int code;
    enum pvn_phase phase; /* PVN_PHASE_ANY: in every phase */
    enum pvn_past past;   /* PVN_PAST_ANY: whatever went before */
    const char *likely;   /* "nothing listens there: ..." without a full stop */
    const char *todo;     /* what to check or type, without a full stop */
};

/* The first row that fits, or NULL. Rows for a phase or a past stand before those without. `code`
 * of either sign. Static storage; any thread. */
const struct pvn_hint *pvn_hint_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                     enum pvn_past past);

/* pvn_hint_find's row as an id, PVN_HINT_NONE where there is none: fits struct pvn_err. */
enum pvn_hint_id pvn_hint_id_find(enum pvn_hint_space space, int code, enum pvn_phase phase,
                                  enum pvn_past past);

/* NULL for PVN_HINT_NONE and for a number that is no id. */
const struct pvn_hint *pvn_hint_get(int id);

/* The whole table, for tests and documentation. */
const struct pvn_hint *pvn_hint_table(size_t *count);

/* "dial", "verify", ...; "any" for PVN_PHASE_ANY. */
const char *pvn_phase_name(enum pvn_phase phase);

#endif
